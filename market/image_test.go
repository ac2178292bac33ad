package market_test

import (
	"slices"
	"testing"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// TestRefusalsOfImages checks which refusals that concern an image make the whole order fail. These
// are the refusals that every worker would send, because of the registry or the image. If another
// worker might succeed, the next one is claimed.
func TestRefusalsOfImages(t *testing.T) {
	const web = "example.com/web:1"
	type said struct {
		reason bourse.RefusalReason
		detail string
	}
	unreached := said{bourse.RefusedRegistry, "image " + web + ": example.com cannot be reached: no such host"}
	missing := said{bourse.RefusedNoImage, "image " + web + ": there is no such image"}
	program := said{bourse.RefusedProgram, `the container cannot be started: exec: "nosuch": executable file not found in $PATH`}
	arch := said{bourse.RefusedImage, "image " + web + ": it has no variant for linux/amd64"}
	for name, c := range map[string]struct {
		image  string
		says   map[bourse.WorkerID]said
		code   bourse.Code
		want   string
		claims int
	}{
		"no such image":                    {web, map[bourse.WorkerID]said{"w0": missing, "w1": missing, "w2": missing}, bourse.CodeNotFound, missing.detail, 1},
		"no such program":                  {web, map[bourse.WorkerID]said{"w0": program, "w1": program, "w2": program}, bourse.CodeInvalid, program.detail, 1},
		"registry unreachable":             {web, map[bourse.WorkerID]said{"w0": unreached, "w1": unreached, "w2": unreached}, bourse.CodeUnavailable, unreached.detail + " (gru: 3 workers asked)", 3},
		"registry reachable by one worker": {web, map[bourse.WorkerID]said{"w0": unreached, "w1": unreached}, "", "", 3},
		"for another platform":             {web, map[bourse.WorkerID]said{"w0": arch, "w1": arch}, "", "", 3},
		"no program on the hosts":          {"host", map[bourse.WorkerID]said{"w0": program, "w1": program, "w2": program}, bourse.CodeInvalid, program.detail + " (gru: 3 workers asked)", 3},
		"program on one host only":         {"host", map[bourse.WorkerID]said{"w0": program, "w1": program}, "", "", 3},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := floor(3, room(5))
			for id, s := range c.says {
				cluster.Tell(id, &Lies{Claim: func(*bourse.Fill, *bourse.Refusal, error) (*bourse.Fill, *bourse.Refusal, error) {
					return nil, &bourse.Refusal{Worker: id, Region: "gru", Reason: s.reason, Resource: web, Detail: s.detail}, nil
				}})
			}
			o := order("gru")
			o.Config.Image = c.image
			a := place(t.Context(), broker(cluster, nil), o)
			if got := cluster.Calls(Claim); got > c.claims || c.code != "" && got != c.claims {
				t.Errorf("%d claims, want %d", got, c.claims)
			}
			if c.code == "" {
				if a.err != nil || a.fill.Machine.Worker != "w2" {
					t.Errorf("on %s, %v", a.fill.Machine.Worker, a.err)
				}
				return
			}
			fails(t, a.err, c.code)
			got := a.err.Error()
			for _, w := range []string{" (w0)", " (w1)", " (w2)"} { // the worker that was claimed
				if got == c.want+w {
					got = c.want
				}
			}
			if got != c.want {
				t.Errorf("error\n %s, want\n %s", got, c.want)
			}
		})
	}
}

// TestAQuoteDoesNotSayThatThereIsNoImage checks that a quote cannot make an order fail because of a
// missing image. Only a worker that has tried to pull the image knows that it is missing.
func TestAQuoteDoesNotSayThatThereIsNoImage(t *testing.T) {
	c := floor(3, room(5))
	c.Tell("w0", &Lies{Quote: func(q *bourse.Quote) { q.Refusal = &bourse.Refusal{Reason: bourse.RefusedNoImage, Detail: "no"} }})
	o := order("gru")
	o.Config.Image = "example.com/web:1"
	if a := place(t.Context(), broker(c, nil), o); a.err != nil {
		t.Error(a.err)
	}
}

// TestAsksAboutImages checks that workers are asked about images. A worker that cannot pull the
// image is not in the ranking of a quote. If no worker can pull it, the order is refused as if a
// claim had failed, and the next region is tried. A volume goes to a worker that can pull the image
// of the machine for which the volume is intended.
func TestAsksAboutImages(t *testing.T) {
	const web = "example.com/web:1"
	pulls := func(reason bourse.RefusalReason) *Lies {
		return &Lies{Pulls: func() *bourse.Refusal { return &bourse.Refusal{Reason: reason, Resource: web, Detail: string(reason)} }}
	}
	ranked := func(d *bourse.Decision) (out []bourse.WorkerID) {
		for _, r := range d.Rounds[len(d.Rounds)-1].Ranked {
			out = append(out, r.Worker)
		}
		return out
	}
	for name, tt := range map[string]struct {
		image string
		says  map[bourse.WorkerID]bourse.RefusalReason
		code  bourse.Code
		want  []bourse.WorkerID // workers that would fill the order
	}{
		"all":                   {web, nil, "", []bourse.WorkerID{"w0", "w1"}},
		"one":                   {web, map[bourse.WorkerID]bourse.RefusalReason{"w0": bourse.RefusedRegistry}, "", []bourse.WorkerID{"w1"}},
		"another variant":       {web, map[bourse.WorkerID]bourse.RefusalReason{"w1": bourse.RefusedImage}, "", []bourse.WorkerID{"w0"}},
		"no reachable registry": {web, map[bourse.WorkerID]bourse.RefusalReason{"w0": bourse.RefusedRegistry, "w1": bourse.RefusedRegistry}, bourse.CodeUnavailable, nil},
		"no such image":         {web, map[bourse.WorkerID]bourse.RefusalReason{"w0": bourse.RefusedNoImage}, bourse.CodeNotFound, nil},
		"a host program":        {"host", map[bourse.WorkerID]bourse.RefusalReason{"w0": bourse.RefusedRegistry, "w1": bourse.RefusedRegistry}, "", []bourse.WorkerID{"w0", "w1"}},
	} {
		cluster := floor(2, room(5))
		for id, reason := range tt.says {
			cluster.Tell(id, pulls(reason))
		}
		o := order("gru")
		o.Config.Image = tt.image
		d, err := broker(cluster, nil).Quote(t.Context(), o)
		if bourse.CodeOf(err) != tt.code {
			t.Errorf("%s: %v, want %q", name, err, tt.code)
			continue
		}
		if got := slices.Sorted(slices.Values(ranked(&d))); tt.code == "" && !slices.Equal(got, tt.want) || len(d.Rounds[0].Refusals) > len(tt.says) {
			t.Errorf("%s: %v would accept the order, %+v", name, got, d.Rounds)
		}
		volume := volumeOrder()
		volume.Config.Image = tt.image
		v := place(t.Context(), broker(cluster, func(cfg *market.Config) { cfg.Trader = seller{Trader: cfg.Trader} }), volume)
		if bourse.CodeOf(v.err) != tt.code || v.err == nil && !slices.Contains(tt.want, v.fill.Volume.Worker) {
			t.Errorf("%s: quote for a volume: %+v, %v", name, v.decision, v.err)
		}
	}
	cluster := newCluster(Spec{ID: "w0", Region: "gru", Total: room(5)}, Spec{ID: "w1", Region: "mad", Total: room(5)})
	cluster.Tell("w0", pulls(bourse.RefusedRegistry))
	o := order("gru", "mad")
	o.Config.Image = web
	if d, err := broker(cluster, nil).Quote(t.Context(), o); err != nil || !slices.Equal(ranked(&d), []bourse.WorkerID{"w1"}) {
		t.Errorf("in the next region: %+v, %v", d, err)
	}
}
