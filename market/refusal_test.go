package market_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// TestInvariant10NoIsAnAnswer checks that a refusal takes only one round, and is recorded with the
// worker, the resource, and the wanted and free amounts. The message must name the resource that
// was short.
func TestInvariant10NoIsAnAnswer(t *testing.T) {
	const phrase = "insufficient resources available to fulfill request: could not reserve resource for machine: insufficient %s available to fulfill request"
	amounts := func(cpu, memory, gpus int64) bourse.Amounts {
		return bourse.Amounts{{Resource: "cpu", Amount: cpu}, {Resource: "gpu.a10", Amount: gpus}, {Resource: "memory", Amount: memory}, {Resource: "slots", Amount: 1}}
	}
	full, arm := amounts(9000, 128, 1), map[string]string{"arch": "arm64"}
	for name, test := range map[string]refusalCase{
		"memory": {
			specs: []Spec{{ID: "w1", Region: "gru", Total: amounts(9000, 64, 1)}, {ID: "w2", Region: "gru", Total: full}},
			code:  bourse.CodeInsufficient,
			want:  fmt.Sprintf(phrase, "memory") + " (gru: 2 workers asked; memory: wanted 256 MiB, most free 128 MiB on w2)",
		},
		"the most frequent first": {
			specs: []Spec{
				{ID: "w1", Region: "gru", Total: amounts(500, 999, 1)}, {ID: "w2", Region: "gru", Total: amounts(250, 999, 1)}, {ID: "w3", Region: "gru", Total: full},
			},
			code: bourse.CodeInsufficient,
			want: fmt.Sprintf(phrase, "CPUs") + " (gru: 3 workers asked; cpu: wanted 1 core, most free 0.5 cores on w1; memory: wanted 256 MiB, most free 128 MiB on w3)",
		},
		"gpus": {
			specs: []Spec{{ID: "w1", Region: "gru", Total: amounts(9000, 999, 1)}},
			order: func(o *bourse.Order) { o.Config.Guest.GPUs, o.Config.Guest.GPUKind = 2, "a10" },
			code:  bourse.CodeInsufficient,
			want:  fmt.Sprintf(phrase, "GPUs") + " (gru: 1 worker asked; gpu.a10: wanted 2, most free 1 on w1)",
		},
		"a countable, in two regions": {
			specs: []Spec{{ID: "w1", Region: "gru", Total: amounts(9000, 999, 1)}, {ID: "w2", Region: "mad", Total: amounts(9000, 999, 1)}},
			order: func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{"slots": {Count: 2}} },
			code:  bourse.CodeInsufficient,
			want:  fmt.Sprintf(phrase, "slots") + " (gru: 1 worker asked; mad: 1 worker asked; slots: wanted 2, most free 1 on w1)",
		},
		"capacity is reported before a label": {
			specs: []Spec{
				{ID: "w1", Region: "gru", Total: amounts(9000, 999, 1), Labels: arm},
				{ID: "w2", Region: "gru", Total: amounts(9000, 999, 1), Labels: arm},
				{ID: "w3", Region: "gru", Total: full, Labels: map[string]string{"arch": "amd64"}},
			},
			order: func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{"arch": {Label: "amd64"}} },
			code:  bourse.CodeInsufficient,
			want: fmt.Sprintf(phrase, "memory") + ` (gru: 3 workers asked; memory: wanted 256 MiB, most free 128 MiB on w3; ` +
				`label arch is "arm64" here (w1 and 1 more))`,
		},
		"no capacity refusal at all": {
			specs: []Spec{{ID: "w1", Region: "gru", Total: full, Labels: arm}},
			order: func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{"arch": {Label: "amd64"}} },
			code:  bourse.CodeInsufficient,
			want:  `no worker can fulfill the request (gru: 1 worker asked; label arch is "arm64" here (w1))`,
		},
		"an unknown countable": {
			specs: []Spec{{ID: "w1", Region: "gru", Total: amounts(9000, 999, 1)}},
			order: func(o *bourse.Order) { o.Config.Requirements = bourse.Requirements{"widgets": {Count: 2}} },
			code:  bourse.CodeInsufficient,
			want:  `no worker can fulfill the request (gru: 1 worker asked; the worker has no widgets (w1))`,
		},
		"no worker there": {
			specs: []Spec{{ID: "w1", Region: "nrt", Total: full}},
			code:  bourse.CodeInsufficient,
			want:  "insufficient resources available to fulfill request: no worker accepts orders in gru",
		},
		"one region empty, one full": {
			specs: []Spec{{ID: "w1", Region: "mad", Total: full}},
			code:  bourse.CodeInsufficient,
			want:  fmt.Sprintf(phrase, "memory") + " (gru: no worker there; mad: 1 worker asked; memory: wanted 256 MiB, most free 128 MiB on w1)",
		},
	} {
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s named=%v", name, named), func(t *testing.T) { test.check(t, named) })
		}
	}
}

type refusalCase struct {
	specs []Spec
	order func(*bourse.Order)
	code  bourse.Code
	want  string
}

func (test *refusalCase) check(t *testing.T, named bool) {
	c := newCluster(test.specs...)
	o := order("gru")
	if strings.Contains(test.want, "mad") {
		o = order("gru", "mad")
	}
	o.HasChosenID = named
	if test.order != nil {
		test.order(&o)
	}
	x := broker(c, nil)
	a := place(t.Context(), x, o)
	fails(t, a.err, test.code)
	if got := a.err.Error(); got != test.want {
		t.Errorf("error\n %s, want\n %s", got, test.want)
	}
	if got := c.Calls(Ask) + c.Calls(Claim); got > len(test.specs) {
		t.Errorf("%d messages to %d workers", got, len(test.specs))
	}
	d, ok := x.Decision(o.ID)
	if !ok || d.Outcome != bourse.OutcomeRefused || d.Message != test.want {
		t.Errorf("decision found: %v, %+v", ok, d)
	}
	for _, r := range d.Refusals() {
		if r.Worker == "" || r.Region == "" || (r.Reason == bourse.RefusedResource && (r.Resource == "" || r.Wanted <= r.Free)) {
			t.Errorf("incomplete refusal: %+v", r)
		}
	}
}

func TestSilenceIsUnavailable(t *testing.T) {
	for _, n := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			c := floor(n, room(1))
			c.Break(func(Call) Fault { return Fault{Unreachable: true} })
			a := place(t.Context(), broker(c, nil), order("gru"))
			fails(t, a.err, bourse.CodeUnavailable)
			if want := fmt.Sprintf("(gru: %d worker", n); !strings.Contains(a.err.Error(), want) || a.took > 250*time.Millisecond {
				t.Errorf("error after %s: %q, want one that contains %q", a.took, a.err, want)
			}
		})
	}
}

// TestSilentWorkerIsMentioned checks that a worker that does not answer does not hide the other
// workers' answers. Because it may have the capacity that they lack, the error is not
// insufficient_capacity.
func TestSilentWorkerIsMentioned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(3, bourse.Amounts{{Resource: "cpu", Amount: 9000}, {Resource: "memory", Amount: 1}})
		c.Break(func(call Call) Fault {
			return Fault{LoseRequest: call.Worker == "w1"}
		})
		a := place(t.Context(), broker(c, nil), order("gru"))
		c.Quiet()
		fails(t, a.err, bourse.CodeUnavailable)
		if !strings.HasSuffix(a.err.Error(), "memory: wanted 256 MiB, most free 1 MiB on w0; 1 worker did not answer)") {
			t.Errorf("error %q", a.err)
		}
		i := slices.IndexFunc(a.decision.Refusals(), func(r bourse.Refusal) bool { return r.Reason == bourse.RefusedNoAnswer })
		if i < 0 || a.decision.Refusals()[i].Worker != "w1" {
			t.Errorf("refusals: %+v", a.decision.Refusals())
		}
	})
}

// TestBusyWorkerIsNotInsufficient checks that an overloaded worker is skipped. The order is not
// canceled there, and the error does not report a lack of capacity.
func TestBusyWorkerIsNotInsufficient(t *testing.T) {
	for _, n := range []int{1, 3} {
		c := floor(n, room(5))
		busy := func(*bourse.Fill, *bourse.Refusal, error) (*bourse.Fill, *bourse.Refusal, error) {
			return nil, nil, bourse.Errorf(bourse.CodeRateLimited, "64 orders are in progress")
		}
		c.Tell("w0", &Lies{Claim: busy})
		a := place(t.Context(), broker(c, nil), order("gru"))
		if n > 1 {
			if a.err != nil || a.fill.Machine.Worker == "w0" {
				t.Errorf("with other workers free: filled on %s, %v", a.fill.Machine.Worker, a.err)
			}
			continue
		}
		fails(t, a.err, bourse.CodeUnavailable)
		if r := a.decision.Refusals(); len(r) != 1 || r[0].Reason != bourse.RefusedNoAnswer {
			t.Errorf("refusals: %+v", r)
		}
	}
}

// TestTakenNameEndsTheOrder checks that an order fails if any worker already has a machine with the
// order's name, because the name must be unique within the app.
func TestTakenNameEndsTheOrder(t *testing.T) {
	for _, n := range []int{1, 3} {
		c := floor(n, room(5))
		c.Tell("w0", &Lies{
			Quote: func(q *bourse.Quote) { q.Refusal = &bourse.Refusal{Reason: bourse.RefusedName} },
			Claim: func(*bourse.Fill, *bourse.Refusal, error) (*bourse.Fill, *bourse.Refusal, error) {
				return nil, &bourse.Refusal{Reason: bourse.RefusedName}, nil
			},
		})
		o := order("gru", "mad")
		o.Name = "cart"
		a := place(t.Context(), broker(c, nil), o)
		fails(t, a.err, bourse.CodeAlreadyExists)
		if want := `app shop already has a machine named "cart", on worker w0`; a.err.Error() != want {
			t.Errorf("error %q, want %q", a.err, want)
		}
	}
}

// TestRecordIsBounded checks that the decision and the message stay small, however many workers
// send long refusals, and that all refusals are counted.
func TestRecordIsBounded(t *testing.T) {
	c := floor(300, room(0))
	for i := range 300 {
		c.Tell(bourse.WorkerID(fmt.Sprintf("w%d", i)), &Lies{Quote: func(q *bourse.Quote) {
			q.Refusal = &bourse.Refusal{Reason: bourse.RefusedLabel, Resource: fmt.Sprint(i/2, strings.Repeat("x", 9999)), Detail: strings.Repeat("y", 9999)}
		}})
	}
	x := broker(c, func(cfg *market.Config) { cfg.Sample = 1000 })
	a := place(t.Context(), x, order("gru"))
	fails(t, a.err, bourse.CodeInsufficient)
	if got := len(a.decision.Rounds[0].Refusals); got != bourse.MaxRecorded {
		t.Errorf("%d refusals recorded", got)
	}
	if r := a.decision.Rounds[0].Refusals[0]; len(r.Detail) > 600 || len(r.Resource) > 200 {
		t.Errorf("a refusal of %d and %d bytes", len(r.Resource), len(r.Detail))
	}
	if len(a.err.Error()) > 4096 || !strings.Contains(a.err.Error(), "300 workers asked") {
		t.Errorf("%d bytes: %.200s", len(a.err.Error()), a.err)
	}
}
