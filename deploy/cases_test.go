package deploy_test

import (
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// planCase is a plan to compare with a golden file.
type planCase struct {
	name string
	plan func(*stage) deploy.Plan
}

// wants returns a case that plans a deploy of a. Before that, it deploys the groups in there, and calls change to
// change their machines.
func wants(name string, there []deploy.Group, change func(*stage), a deploy.App) planCase {
	return planCase{name, func(s *stage) deploy.Plan {
		s.there(there...)
		if change != nil {
			change(s)
		}
		return s.make(a)
	}}
}

type groups = []deploy.Group

func firstCases() []planCase {
	command := app(deploy.Rolling, web("shop:1"))
	command.Command = &deploy.Command{Config: config("shop:1", false), Timeout: 5e9}
	anywhere := app(deploy.Rolling, web("shop:1"))
	anywhere.Primary = ""
	single := with(web("shop:1"), func(g *deploy.Group) { g.Spare = false })
	return []planCase{
		wants("first-web", nil, nil, app(deploy.Rolling, web("shop:1"))),
		wants("first-web-without-spare", nil, nil, app(deploy.Rolling, single)),
		wants("first-worker", nil, nil, app(deploy.Rolling, worker("shop:1"))),
		wants("first-worker-without-spare", nil, nil, app(deploy.Rolling, with(worker("shop:1"), func(g *deploy.Group) { g.Spare = false }))),
		wants("first-db", nil, nil, app(deploy.Rolling, db("shop:1"))),
		wants("first-db-free-volume", nil, func(s *stage) { s.addVolume("data", 10, "fra") }, app(deploy.Rolling, db("shop:1"))),
		wants("first-groups", nil, nil, app(deploy.Rolling, web("shop:1"), worker("shop:1"), db("shop:1"))),
		wants("first-anywhere", nil, nil, anywhere),
		wants("first-counts", nil, nil, app(deploy.Rolling, in(web("shop:1"), "fra", 2, "gru", 3), in(db("shop:1"), "lhr", 2))),
		wants("first-none", nil, nil, app(deploy.Rolling, in(web("shop:1"), "fra", 0))),
		wants("first-command", nil, nil, command),
		wants("first-immediate", nil, nil, app(deploy.Immediate, web("shop:1"))),
		wants("first-canary", nil, nil, app(deploy.Canary, web("shop:1"))),
		wants("first-bluegreen", nil, nil, app(deploy.BlueGreen, web("shop:1"), worker("shop:1"))),
		wants("refused-no-groups", nil, nil, app(deploy.Rolling)),
		wants("refused-strategy", nil, nil, app("fast", web("shop:1"))),
		wants("refused-twice", nil, nil, app(deploy.Rolling, web("shop:1"), web("shop:1"))),
	}
}

func updateCases() []planCase {
	var out []planCase
	for _, s := range strategies {
		two, five := groups{web("shop:1")}, groups{in(web("shop:1"), "fra", 3, "gru", 2)}
		out = append(
			out,
			wants("same-"+string(s), groups{web("shop:1"), worker("shop:1")}, nil, app(s, web("shop:1"), worker("shop:1"))),
			wants("image-"+string(s), two, nil, app(s, web("shop:2"))),
			wants("image-regions-"+string(s), five, nil, app(s, in(web("shop:2"), "fra", 3, "gru", 2))),
			wants("image-worker-"+string(s), groups{worker("shop:1")}, nil, app(s, worker("shop:2"))),
			wants("image-db-"+string(s), groups{db("shop:1")}, nil, app(s, db("shop:2"))),
			wants("image-stopped-"+string(s), two, func(s *stage) { s.nth(2).State = bourse.StateStopped }, app(s, web("shop:2"))),
			wants("image-and-more-"+string(s), two, nil, app(s, in(web("shop:2"), "fra", 2, "lhr", 1), worker("shop:2"))),
		)
	}
	for name, limit := range map[string]float64{"half": 0.5, "two": 2, "usual": 0} {
		a := app(deploy.Rolling, in(web("shop:2"), "fra", 6))
		a.MaxUnavailable = limit
		out = append(out, wants("image-unavailable-"+name, groups{in(web("shop:1"), "fra", 6)}, nil, a))
	}
	command := app(deploy.Rolling, web("shop:2"))
	command.Command = &deploy.Command{Config: config("shop:2", false), Timeout: 5e9}
	change := func(f func(*deploy.Group)) deploy.App { return app(deploy.Rolling, with(web("shop:1"), f)) }
	return append(
		out,
		wants("image-command", groups{web("shop:1")}, nil, command),
		wants("changed-env", groups{web("shop:1")}, nil, change(func(g *deploy.Group) { g.Config.Env = map[string]string{"PASSWORD": "hunter2"} })),
		wants("changed-size", groups{web("shop:1")}, nil, change(func(g *deploy.Group) { g.Config.Size = "performance-2x" })),
		wants("kept-size", groups{with(web("shop:1"), func(g *deploy.Group) { g.Config.Size = "shared-cpu-4x" })}, nil, change(func(g *deploy.Group) { g.KeepGuest = true })),
		wants("changed-metadata", groups{web("shop:1")}, nil, change(func(g *deploy.Group) { g.Config.Metadata = map[string]string{"team": "blue"} })),
		wants("changed-service", groups{web("shop:1")}, nil, change(func(g *deploy.Group) { g.Config.Services = []byte(`[{"protocol":"tcp","internal_port":9090}]`) })),
		wants("same-service-spelled-otherwise", groups{web("shop:1")}, func(s *stage) {
			for _, m := range s.machines {
				c := *m.Config
				c.Services = []byte(`[ {"internal_port":8080, "protocol":"tcp", "ports":[{"handlers":["http"],"port":80,"force_https":null}], "checks":[{"path":"/","interval":"10s","type":"http","headers":[]}]} ]`)
				m.Config = &c
			}
		}, app(deploy.Rolling, web("shop:1"))),
		planCase{"image-of-another-digest", func(s *stage) deploy.Plan {
			s.there(web("shop:1"))
			s.nth(1).ImageRef.Digest, s.nth(2).ImageRef.Digest = "sha256:aaaaaaaaaaaaaaaaaaaaaaaa", "sha256:bbbbbbbbbbbbbbbbbbbbbbbb"
			s.opts.Digests = map[string]string{"shop:1": "sha256:bbbbbbbbbbbbbbbbbbbbbbbb"}
			return s.make(app(deploy.Rolling, web("shop:1")))
		}},
		wants("bluegreen-without-check", groups{web("shop:1")}, nil, app(deploy.BlueGreen, with(web("shop:2"), func(g *deploy.Group) {
			g.Config.Services = []byte(`[{"protocol":"tcp","internal_port":8080}]`)
		}))),
		wants("mount-added", groups{with(db("shop:1"), func(g *deploy.Group) { g.Mount = nil })}, nil, app(deploy.Rolling, db("shop:1"))),
		wants("mount-removed", groups{db("shop:1")}, nil, app(deploy.Rolling, with(db("shop:1"), func(g *deploy.Group) { g.Mount = nil }))),
		wants("mount-renamed", groups{db("shop:1")}, nil, app(deploy.Rolling, with(db("shop:1"), func(g *deploy.Group) { g.Mount = &deploy.Mount{Volume: "more", Path: "/data", SizeGB: 20} }))),
		wants("mount-elsewhere", groups{db("shop:1")}, nil, app(deploy.Rolling, with(db("shop:1"), func(g *deploy.Group) { g.Mount = &deploy.Mount{Volume: "data", Path: "/var/data", SizeGB: 10} }))),
	)
}

func countCases() []planCase {
	three := groups{in(web("shop:1"), "fra", 3)}
	return []planCase{
		wants("count-more", three, nil, app(deploy.Rolling, in(web("shop:1"), "fra", 5))),
		wants("count-fewer", three, nil, app(deploy.Rolling, in(web("shop:1"), "fra", 1))),
		wants("count-fewer-not-serving", three, func(s *stage) { s.nth(1).State = bourse.StateStopped }, app(deploy.Rolling, in(web("shop:1"), "fra", 2))),
		wants("count-none", groups{worker("shop:1")}, nil, app(deploy.Rolling, in(worker("shop:1"), "fra", 0))),
		wants("count-other-region", three, nil, app(deploy.Rolling, in(web("shop:1"), "gru", 3))),
		wants("count-fewer-and-image", three, nil, app(deploy.Rolling, in(web("shop:2"), "fra", 2))),
		wants("count-worker-other-region", groups{worker("shop:1")}, nil, app(deploy.Rolling, in(worker("shop:1"), "gru", 1))),
		wants("group-new", groups{web("shop:1")}, nil, app(deploy.Rolling, web("shop:1"), worker("shop:1"))),
		wants("group-gone", groups{web("shop:1"), worker("shop:1")}, nil, app(deploy.Rolling, web("shop:2"))),
		wants("group-renamed", groups{web("shop:1")}, nil, app(deploy.Rolling, with(web("shop:1"), func(g *deploy.Group) { g.Name = "front" }))),
		wants("group-gone-with-volume", groups{web("shop:1"), db("shop:1")}, nil, app(deploy.Rolling, web("shop:1"))),
	}
}

func stateCases() []planCase {
	lost := func(n int) func(*stage) {
		return func(s *stage) { s.nth(n).HostStatus = machinesapi.HostUnreachable }
	}
	two := groups{web("shop:1")}
	crash := func(s *stage) {
		s.nth(1).State, s.nth(1).Exit = bourse.StateStopped, &machinesapi.ExitEvent{ExitCode: 1}
	}
	return []planCase{
		wants("lost-left", two, lost(1), app(deploy.Rolling, web("shop:2"))),
		wants("lost-left-bluegreen", two, lost(1), app(deploy.BlueGreen, web("shop:2"))),
		wants("lost-gone", two, lost(1), app(deploy.Rolling, worker("shop:1"))),
		wants("cordoned-rolling", two, func(s *stage) { s.nth(1).Cordoned = true }, app(deploy.Rolling, web("shop:2"))),
		wants("cordoned-bluegreen", two, func(s *stage) { s.nth(1).Cordoned = true }, app(deploy.BlueGreen, web("shop:2"))),
		wants("failed-same", two, func(s *stage) { s.nth(1).State = bourse.StateFailed }, app(deploy.Rolling, web("shop:1"))),
		wants("failed-image", two, func(s *stage) { s.nth(2).State = bourse.StateFailed }, app(deploy.Rolling, web("shop:2"))),
		wants("crashed-same", two, crash, app(deploy.Rolling, web("shop:1"))),
		wants("crashed-image", two, crash, app(deploy.Rolling, web("shop:2"))),
		{"crashed-resume", func(s *stage) deploy.Plan {
			s.there(two...)
			s.done(s.make(app(deploy.Rolling, web("shop:2"))), 1)
			crash(s)
			return s.make(app(deploy.Rolling, web("shop:2")))
		}},
		{"undo-crashed", func(s *stage) deploy.Plan {
			s.there(two...)
			s.done(s.make(app(deploy.Rolling, web("shop:2"))), 1)
			crash(s)
			return deploy.Undo(s.state(), second, quick)
		}},
		wants("foreign", two, func(s *stage) {
			c := config("mine:1", false)
			s.add(&c, "gru", bourse.StateStarted, false)
		}, app(deploy.Rolling, web("shop:1"))),
		wants("leftover-canary", two, func(s *stage) {
			s.until(deploy.Make(app(deploy.Canary, web("shop:2")), s.state(), s.opts), deploy.MakeMachine{})
		}, app(deploy.Canary, web("shop:2"))),
		wants("leftover-command", two, func(s *stage) {
			c := config("shop:1", false)
			c.Metadata = map[string]string{deploy.KeyGroup: deploy.CommandGroup, deploy.KeyPlatform: deploy.Platform}
			s.add(&c, "fra", bourse.StateStarted, false)
		}, app(deploy.Rolling, web("shop:1"))),
	}
}

func halfwayCases() []planCase {
	two := groups{web("shop:1")}
	blue := func(do deploy.Action) func(*stage) {
		return func(s *stage) { s.until(s.make(app(deploy.BlueGreen, web("shop:2"))), do) }
	}
	var out []planCase
	for name, do := range map[string]deploy.Action{
		"made": deploy.MakeMachine{}, "uncordoned": deploy.UncordonMachine{}, "cordoned": deploy.CordonMachine{}, "stopped": deploy.StopMachine{},
	} {
		out = append(
			out,
			wants("halfway-bluegreen-"+name, two, blue(do), app(deploy.BlueGreen, web("shop:2"))),
			wants("halfway-bluegreen-"+name+"-other-image", two, blue(do), app(deploy.Rolling, web("shop:3"))),
			planCase{"undo-bluegreen-" + name, func(s *stage) deploy.Plan {
				s.there(two...)
				blue(do)(s)
				return deploy.Undo(s.state(), second, quick)
			}},
		)
	}
	undo := func(name string, there groups, a deploy.App, n int) planCase {
		return planCase{name, func(s *stage) deploy.Plan {
			s.there(there...)
			s.done(s.make(a), n)
			return deploy.Undo(s.state(), second, quick)
		}}
	}
	return append(
		out,
		wants("halfway-bluegreen-one-destroyed", two, func(s *stage) { s.done(s.make(app(deploy.BlueGreen, web("shop:2"))), 14) }, app(deploy.BlueGreen, web("shop:2"))),
		wants("halfway-rolling", two, func(s *stage) {
			s.done(s.make(app(deploy.Rolling, web("shop:2"))), 1)
			s.nth(1).Checks = []bourse.CheckStatus{{Name: "alive", Status: "warning"}}
		}, app(deploy.Rolling, web("shop:2"))),
		wants("halfway-move", groups{db("shop:1")}, func(s *stage) {
			s.until(deploy.Move(s.state(), slices.Collect(maps.Keys(s.machines)), slow), deploy.StopMachine{})
		}, app(deploy.Rolling, db("shop:1"))),
		undo("undo-rolling", groups{in(web("shop:1"), "fra", 4)}, app(deploy.Rolling, in(web("shop:2"), "fra", 4)), 3),
		undo("undo-first", nil, app(deploy.Rolling, web("shop:1"), db("shop:1")), 5),
		undo("undo-group-going", groups{web("shop:1"), worker("shop:1")}, app(deploy.Rolling, web("shop:1")), 3),
		undo("undo-bluegreen-one-destroyed", two, app(deploy.BlueGreen, web("shop:2")), 14),
		undo("undo-bluegreen-destroyed", two, app(deploy.BlueGreen, web("shop:2")), 99),
		undo("undo-nothing", two, app(deploy.Rolling, web("shop:2")), 0),
	)
}

func fleetCases() []planCase {
	fleet := func(name string, there groups, plan func(*stage) deploy.Plan) planCase {
		return planCase{name, func(s *stage) deploy.Plan {
			s.there(there...)
			return plan(s)
		}}
	}
	scale := func(name string, there groups, counts map[string][]deploy.Count) planCase {
		return fleet(name, there, func(s *stage) deploy.Plan { return deploy.Scale(s.state(), counts, quick) })
	}
	move := func(name string, there groups, change func(*stage)) planCase {
		return fleet(name, there, func(s *stage) deploy.Plan {
			change(s)
			return deploy.Move(s.state(), slices.Collect(maps.Keys(s.machines)), deploy.MoveOptions{Concurrency: 1, Why: "worker a is drained"})
		})
	}
	nothing := func(*stage) {}
	all := groups{web("shop:1"), worker("shop:1"), db("shop:1")}
	return []planCase{
		scale("scale-up", all, map[string][]deploy.Count{"web": {{Region: "fra", Count: 4}}, "db": {{Region: "fra", Count: 2}}}),
		scale("scale-down", all, map[string][]deploy.Count{"web": {{Region: "fra", Count: 1}}}),
		scale("scale-regions", all, map[string][]deploy.Count{"web": {{Region: "fra", Count: 2}, {Region: "gru", Count: 1}}}),
		scale("scale-to-none", all, map[string][]deploy.Count{"worker": {{Region: "fra", Count: 0}}}),
		scale("scale-unknown", all, map[string][]deploy.Count{"wub": {{Region: "fra", Count: 1}}}),
		fleet("resize", all, func(s *stage) deploy.Plan {
			return deploy.Resize(s.state(), []string{"web", "worker"}, bourse.Guest{CPUs: 2}, quick)
		}),
		fleet("restart", all, func(s *stage) deploy.Plan { return deploy.Restart(s.state(), nil, quick) }),
		fleet("restart-unknown", all, func(s *stage) deploy.Plan { return deploy.Restart(s.state(), []string{"wub"}, quick) }),
		move("move-web", groups{web("shop:1")}, nothing),
		move("move-worker", groups{worker("shop:1")}, nothing),
		move("move-db", groups{db("shop:1")}, nothing),
		move("move-stopped", groups{web("shop:1")}, func(s *stage) { s.nth(1).State = bourse.StateStopped }),
		move("move-lost", groups{web("shop:1")}, func(s *stage) { s.nth(1).HostStatus = machinesapi.HostUnreachable }),
		move("move-job", groups{worker("shop:1")}, func(s *stage) {
			c := *s.nth(1).Config
			c.AutoDestroy, c.Restart = true, &bourse.Restart{Policy: bourse.RestartNo}
			s.nth(1).Config = &c
		}),
	}
}
