package deploy_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

const (
	first  = release.ID("01J00000000000000000000001")
	second = release.ID("01J00000000000000000000002")
	third  = release.ID("01J00000000000000000000003")
)

var (
	services = json.RawMessage(`[{"protocol":"tcp","internal_port":8080,"ports":[{"port":80,"handlers":["http"]}],"checks":[{"type":"http","path":"/","interval":"10s"}]}]`)
	regions  = []bourse.Region{"fra", "gru", "lhr"}
)

// config returns a machine's config, with services if serves is set.
func config(image string, serves bool) bourse.Config {
	c := bourse.Config{Image: image, Init: bourse.Init{Cmd: []string{"serve"}}, Env: map[string]string{"A": "1"}}
	if serves {
		c.Services = services
	}
	return c
}

// anApp draws an app with some groups, without mounts if the strategy does not support them.
func anApp(t *rapid.T, image string, s deploy.Strategy) deploy.App {
	app := deploy.App{Name: "shop", Primary: "fra", Strategy: s, MaxUnavailable: rapid.SampledFrom([]float64{0, 0.5, 1, 2}).Draw(t, "unavailable")}
	for _, name := range []string{"web", "worker", "db"}[:rapid.IntRange(1, 3).Draw(t, "groups")] {
		g := deploy.Group{Name: name, Config: config(image, name == "web"), Spare: rapid.Bool().Draw(t, "spare"), KeepGuest: rapid.Bool().Draw(t, "keep")}
		if name == "db" && (s == deploy.Rolling || s == deploy.Immediate) {
			g.Mount = &deploy.Mount{Volume: rapid.SampledFrom([]string{"data", "other"}).Draw(t, "volume"), Path: "/data", SizeGB: 1}
		}
		if rapid.Bool().Draw(t, "counted") {
			for _, in := range regions[:rapid.IntRange(1, 3).Draw(t, "regions")] {
				g.Counts = append(g.Counts, deploy.Count{Region: in, Count: rapid.IntRange(0, 4).Draw(t, "count")})
			}
		}
		app.Groups = append(app.Groups, g)
	}
	if rapid.Bool().Draw(t, "command") {
		app.Command = &deploy.Command{Config: config(image, false)}
	}
	return app
}

var strategies = []deploy.Strategy{deploy.Rolling, deploy.Immediate, deploy.Canary, deploy.BlueGreen}

// deployed draws a world in which an app has been deployed, and some of its machines have
// been stopped.
func deployed(t *rapid.T) *world {
	w := newWorld(t)
	w.app = anApp(t, "shop:1", deploy.Rolling)
	p := deploy.Make(w.app, w.state(), deploy.Options{Release: first, Version: 1})
	w.start(&p).finish()
	ids := slices.Sorted(maps.Keys(w.machines))
	for _, id := range ids {
		if rapid.IntRange(0, 5).Draw(t, "stopped") == 0 {
			w.halt(w.machines[id])
		}
	}
	return w
}

// some executes at most stop steps, in any order that their dependencies permit. It calls after once each step is done.
func (r *run) some(t *rapid.T, stop int, after func()) {
	for range stop {
		list := r.runnable()
		if len(list) == 0 {
			return
		}
		r.do(rapid.SampledFrom(list).Draw(t, "step"))
		after()
	}
}

func steady(t *rapid.T, w *world, app deploy.App, opts deploy.Options) {
	p := deploy.Make(app, w.state(), opts)
	if len(p.Steps) != 0 {
		t.Fatalf("planned again:\n%s%s", dump(&p), p.Text(0))
	}
}

// TestPlannedAgainThereIsNothingToDo checks that, after a plan was executed in any permitted order, another plan for
// the same app has no steps. During the execution, as many machines must serve as the strategy guarantees.
func TestPlannedAgainThereIsNothingToDo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := deployed(t)
		s := rapid.SampledFrom(strategies).Draw(t, "strategy")
		app := anApp(t, rapid.SampledFrom([]string{"shop:1", "shop:2"}).Draw(t, "image"), s)
		opts := deploy.Options{Release: second, Version: 2}
		p := deploy.Make(app, w.state(), opts)
		before := map[string]map[bourse.Region]int{}
		for _, g := range app.Groups {
			before[g.Name] = map[bourse.Region]int{}
			for _, in := range regions {
				before[g.Name][in] = w.serving(g.Name, in)
			}
		}
		r := w.start(&p)
		r.some(t, len(p.Steps), func() {
			if s == deploy.Immediate {
				return
			}
			for _, g := range app.Groups {
				if least := leastServing(&app, &g, before[g.Name]); w.serving(g.Name, "") < least {
					t.Fatalf("%d machines of group %s are serving, want %d\n%s", w.serving(g.Name, ""), g.Name, least, dump(&p))
				}
			}
		})
		if len(r.runnable()) > 0 {
			t.Fatalf("steps are left")
		}
		w.settle()
		steady(t, w, app, opts)
		wanted(t, w, &app)
	})
}

// leastServing returns how many of a group's machines must serve at any time during a plan.
// Of the machines that served before, it counts as many as are desired in each region, and
// subtracts the number that may be unavailable.
func leastServing(app *deploy.App, g *deploy.Group, before map[bourse.Region]int) int {
	count, all := 0, 0
	for in, n := range before {
		all += n
		if g.Counts == nil {
			count += n
			continue
		}
		for _, c := range g.Counts {
			if c.Region == in {
				count += min(n, c.Count)
			}
		}
	}
	if app.Strategy == deploy.BlueGreen {
		return count
	}
	limit := app.MaxUnavailable
	if limit == 0 {
		limit = 0.33
	}
	if limit < 1 {
		limit = math.Ceil(limit * float64(all))
	}
	return max(0, count-int(limit))
}

// wanted fails the test unless the world is in the app's desired state.
func wanted(t *rapid.T, w *world, app *deploy.App) {
	have := map[string]map[bourse.Region]int{}
	for _, m := range w.machines {
		group := m.Config.Metadata[deploy.KeyGroup]
		i := slices.IndexFunc(app.Groups, func(g deploy.Group) bool { return g.Name == group })
		switch {
		case i < 0:
			t.Fatalf("machine %s of group %s still exists", m.ID, group)
		case m.Config.Image != app.Groups[i].Config.Image:
			t.Fatalf("machine %s has image %s", m.ID, m.Config.Image)
		case m.Cordoned:
			t.Fatalf("machine %s is cordoned", m.ID)
		case (app.Groups[i].Mount != nil) != (len(m.Config.Mounts) > 0):
			t.Fatalf("machine %s has mounts %v", m.ID, m.Config.Mounts)
		case m.Config.Metadata[deploy.KeyPaused] != "" || m.Config.Metadata[deploy.KeyCanary] != "":
			t.Fatalf("machine %s has metadata %v", m.ID, m.Config.Metadata)
		}
		if ids := m.Config.Standbys; len(ids) > 0 {
			if m.State == bourse.StateStarted {
				t.Fatalf("spare %s runs", m.ID)
			}
			for _, id := range ids {
				if w.machines[id] == nil {
					t.Fatalf("spare %s has primary %s, which no longer exists", m.ID, id)
				}
			}
			continue
		}
		if have[group] == nil {
			have[group] = map[bourse.Region]int{}
		}
		have[group][m.Region]++
	}
	for _, g := range app.Groups {
		total := 0
		for _, c := range g.Counts {
			if total += c.Count; have[g.Name][c.Region] != c.Count {
				t.Fatalf("group %s in %s: got %d machines, want %d", g.Name, c.Region, have[g.Name][c.Region], c.Count)
			}
		}
		all := 0
		for _, n := range have[g.Name] {
			all += n
		}
		if g.Counts != nil && all != total || g.Counts == nil && all == 0 {
			t.Fatalf("group %s: got %d machines, want %d", g.Name, all, total)
		}
	}
}

// TestAPlanThatWasInterrupted checks that, after plans were interrupted at any step, a new plan leads to the desired
// state and leaves no machines behind.
func TestAPlanThatWasInterrupted(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := deployed(t)
		app := anApp(t, "shop:2", rapid.SampledFrom(strategies).Draw(t, "strategy"))
		opts := deploy.Options{Release: second, Version: 2}
		for range rapid.IntRange(1, 3).Draw(t, "interruptions") {
			p := deploy.Make(app, w.state(), opts)
			r := w.start(&p)
			r.some(t, rapid.IntRange(0, len(p.Steps)).Draw(t, "stop"), func() {})
			if rapid.Bool().Draw(t, "settle") {
				w.settle()
			}
		}
		if rapid.Bool().Draw(t, "another release") {
			app.Strategy = rapid.SampledFrom([]deploy.Strategy{deploy.Rolling, deploy.Immediate}).Draw(t, "next strategy")
			opts = deploy.Options{Release: third, Version: 3}
			for i := range app.Groups {
				app.Groups[i].Config.Image = "shop:3"
			}
		}
		p := deploy.Make(app, w.state(), opts)
		before := dump(&p)
		w.start(&p).finish()
		if q := deploy.Make(app, w.state(), opts); len(q.Steps) > 0 {
			t.Fatalf("planned again:\n%s\nafter\n%s", dump(&q), before)
		}
		wanted(t, w, &app)
	})
}

// picture describes a world, except for the parts that undoing a plan does not restore.
func (w *world) picture() string {
	out := ""
	for _, id := range slices.Sorted(maps.Keys(w.machines)) {
		m := w.machines[id]
		config := *m.Config
		_ = config.Normalize()
		raw, _ := json.Marshal(config)
		out += fmt.Sprintf("%s %s %s cordoned=%t %s\n", id, m.Region, m.State, m.Cordoned, raw)
	}
	return out
}

// TestUndoneStepsLeaveNothing checks that undoing a plan that fails before anything was
// destroyed restores the former state.
func TestUndoneStepsLeaveNothing(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := deployed(t)
		former := w.picture()
		volumes := len(w.volumes)
		app := anApp(t, "shop:2", rapid.SampledFrom(strategies).Draw(t, "strategy"))
		p := deploy.Make(app, w.state(), deploy.Options{Release: second, Version: 2})
		r := w.start(&p)
		lost := false
		for range rapid.IntRange(0, len(p.Steps)).Draw(t, "stop") {
			i := rapid.SampledFrom(r.runnable()).Draw(t, "step")
			s := &p.Steps[i]
			if deploy.Is[deploy.DestroyMachine](s.Do) && s.MadeBy == nil {
				lost = true
				break
			}
			r.do(i)
		}
		if lost { // from here on, nothing would be undone
			return
		}
		for i, s := range p.Steps { // destroyed canaries need not be undone
			if deploy.Is[deploy.DestroyMachine](s.Do) && r.begun[i] {
				r.begun[*s.MadeBy] = false
			}
		}
		r.undo(false)
		w.settle()
		if now := w.picture(); now != former || len(w.volumes) != volumes {
			t.Fatalf("was\n%s\nis\n%s\n%s", former, now, dump(&p))
		}
	})
}

var (
	quick = deploy.Pace{MaxUnavailable: 1}
	slow  = deploy.MoveOptions{Concurrency: 1}
)

// TestUndo checks that undoing an interrupted deploy's release restores the former state if no existing machine has
// been destroyed. Otherwise, all remaining machines must have the former image.
func TestUndo(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := deployed(t)
		former, images := w.picture(), map[string]int{}
		for _, m := range w.machines {
			images[m.Config.Metadata[deploy.KeyGroup]]++
		}
		app := anApp(t, "shop:2", rapid.SampledFrom(strategies).Draw(t, "strategy"))
		p := deploy.Make(app, w.state(), deploy.Options{Release: second, Version: 2})
		r := w.start(&p)
		destroyed := false
		r.some(t, rapid.IntRange(0, len(p.Steps)).Draw(t, "stop"), func() {})
		for i, s := range p.Steps {
			destroyed = destroyed || r.begun[i] && deploy.Is[deploy.DestroyMachine](s.Do) && s.MadeBy == nil
		}
		if rapid.Bool().Draw(t, "settle") {
			w.settle()
		}
		u := deploy.Undo(w.state(), second, quick)
		if destroyed && len(u.Refused) > 0 { // the rest cannot be undone, and the plan reports this
			return
		}
		w.start(&u).finish()
		if now := w.picture(); !destroyed && now != former {
			t.Fatalf("was\n%s\nis\n%s\nplan\n%s\nundone by\n%s", former, now, dump(&p), dump(&u))
		}
		for _, m := range w.machines {
			if m.Config.Image != "shop:1" || m.Cordoned {
				t.Fatalf("machine %s has image %s, cordoned %t", m.ID, m.Config.Image, m.Cordoned)
			}
		}
		if again := deploy.Undo(w.state(), second, quick); len(again.Steps) > 0 {
			t.Fatalf("undone again:\n%s", dump(&again))
		}
	})
}

// TestMove checks moves whose steps are executed in any permitted order and with interruptions. The machines must end
// up on other workers, and their number must stay the same. The number of serving machines without volumes must never
// change.
func TestMove(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { moves(t, true) }) // new machines are never placed on a former worker
}

// TestMoveToTheSameWorker is like TestMove, but a replacement may be placed on the same
// worker, so that a later plan replaces it again.
func TestMoveToTheSameWorker(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) { moves(t, false) })
}

// meanwhile draws the events that follow the interruption of a move of the given machines.
func (w *world) meanwhile(t *rapid.T, r *run, ids []bourse.MachineID) {
	switch rapid.SampledFrom([]string{"nothing", "undo", "restart", "deploy"}).Draw(t, "meanwhile") {
	case "undo":
		r.undo(rapid.Bool().Draw(t, "unreachable"))
	case "restart": // only machines with volumes, because the others must continue to serve
		for _, id := range ids {
			if m := w.machines[id]; m != nil && len(m.Config.Mounts) > 0 && m.State == bourse.StateStopped && rapid.Bool().Draw(t, "start") {
				if w.launch(m); rapid.Bool().Draw(t, "stop again") {
					w.halt(m)
				}
			}
		}
	case "deploy": // deploy the app with another volume
		app := w.app
		app.Groups = slices.Clone(app.Groups)
		for i := range app.Groups {
			if app.Groups[i].Mount != nil {
				app.Groups[i].Mount = &deploy.Mount{Volume: "renamed", Path: "/data", SizeGB: 1}
			}
		}
		p := deploy.Make(app, w.state(), deploy.Options{Release: second, Version: 2})
		w.start(&p).some(t, rapid.IntRange(0, len(p.Steps)).Draw(t, "deployed"), func() {})
	}
	w.settle()
}

func moves(t *rapid.T, spread bool) {
	w := deployed(t)
	before, serving, volumes := w.places(), w.serving("web", ""), len(w.volumes)
	w.spread = spread
	what := slices.Sorted(maps.Keys(w.machines))
	if before == 0 {
		return
	}
	for range rapid.IntRange(0, 2).Draw(t, "interruptions") {
		p := deploy.Move(w.state(), what, slow)
		r := w.start(&p)
		r.some(t, rapid.IntRange(0, len(p.Steps)).Draw(t, "stop"), func() {
			if now := w.serving("web", ""); now < serving {
				t.Fatalf("%d of %d machines are serving\n%s", now, serving, dump(&p))
			}
		})
		w.meanwhile(t, r, what)
		gone := func(id bourse.MachineID) bool { return w.machines[id] == nil }
		if what = slices.DeleteFunc(what, gone); len(what) == 0 {
			break
		}
	}
	if len(what) > 0 {
		p := deploy.Move(w.state(), what, slow)
		w.start(&p).finish()
	}
	w.settle()
	for _, id := range what {
		if w.machines[id] != nil {
			t.Fatalf("machine %s still exists", id)
		}
	}
	if w.places() != before || w.serving("web", "") != serving || len(w.volumes) < volumes {
		t.Fatalf("%d machines, previously %d; %d serve, previously %d; %d volumes, previously %d", w.places(), before, w.serving("web", ""), serving, len(w.volumes), volumes)
	}
	for _, m := range w.machines {
		ids := m.Config.Standbys
		for _, id := range ids {
			if w.machines[id] == nil {
				t.Fatalf("%s is a standby for %s, which no longer exists", m.ID, id)
			}
		}
	}
}
