package market_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// TestImplausibleQuotesLose checks that a worker that sends an invalid quote is not claimed and
// does no harm.
func TestImplausibleQuotesLose(t *testing.T) {
	inf := math.Inf(1)
	quotes := map[string]func(*bourse.Quote){
		"another worker's id": func(q *bourse.Quote) { q.Worker = "good" },
		"no id":               func(q *bourse.Quote) { q.Worker = "" },
		"another region":      func(q *bourse.Quote) { q.Region = "mad" },
		"load is NaN":         func(q *bourse.Quote) { q.Load = math.NaN() },
		"infinite load":       func(q *bourse.Quote) { q.Load = -inf },
		"negative image":      func(q *bourse.Quote) { q.MissingBytes = math.MinInt64 },
		"negative machines":   func(q *bourse.Quote) { q.AppMachines = -1 },
		"negative total":      func(q *bourse.Quote) { q.Accounts[0].Total = -5 },
		"enormous total":      func(q *bourse.Quote) { q.Accounts[0].Total = math.MaxInt64 },
		"negative use":        func(q *bourse.Quote) { q.Accounts[1].Used = math.MinInt64 },
		"negative takes":      func(q *bourse.Quote) { q.Takes[0].Amount = -1 },
		"enormous takes":      func(q *bourse.Quote) { q.Takes[0].Amount = math.MaxInt64 },
		"unsorted":            func(q *bourse.Quote) { slices.Reverse(q.Accounts) },
		"duplicate accounts":  func(q *bourse.Quote) { q.Accounts = append(q.Accounts, q.Accounts...) },
		"another order's machine": func(q *bourse.Quote) {
			q.Filled = &bourse.Machine{ID: "00000000000001", Order: bourse.NewOrderID(), Worker: "bad", Region: "gru"}
		},
		"another worker's machine": func(q *bourse.Quote) { q.Filled = &bourse.Machine{Order: "x", Worker: "good", Region: "gru"} },
		"a long refusal": func(q *bourse.Quote) {
			q.Refusal = &bourse.Refusal{Reason: "resource", Wanted: -1, Free: math.MaxInt64, Detail: strings.Repeat("\xff", 1<<20)}
		},
	}
	for name, lie := range quotes {
		for _, named := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s named=%v", name, named), func(t *testing.T) {
				c := newCluster(
					Spec{ID: "bad", Region: "gru", Total: room(1)}, // would be better than the other worker
					Spec{ID: "good", Region: "gru", Total: room(10), Load: 3},
				)
				c.Tell("bad", &Lies{Quote: lie})
				o := order("gru")
				o.HasChosenID, o.FirstTry = named, true // not a repeated order, which would wait for a worker that sends another's quote
				a := place(t.Context(), broker(c, func(cfg *market.Config) { cfg.QuoteTimeout = 5 * time.Millisecond }), o)
				if a.err != nil || a.fill.Machine.Worker != "good" {
					t.Fatalf("filled on %q: %v", a.fill.Machine.Worker, a.err)
				}
				if len(a.decision.Message) > 4096 {
					t.Errorf("the message has %d bytes", len(a.decision.Message))
				}
			})
		}
	}
}

func TestSampleIsWidenedOnlyWhenItRefuses(t *testing.T) {
	c := floor(100, room(1))
	x := broker(c, nil)
	a := place(t.Context(), x, order("gru"))
	if a.err != nil {
		t.Fatal(a.err)
	}
	if got := c.Calls(Ask); got != 20 {
		t.Errorf("%d of 100 workers were asked, want 20", got)
	}
	for range 99 { // the directory's hint never changes, so it is outdated
		if a := place(t.Context(), x, order("gru")); a.err != nil {
			t.Fatal(a.err)
		}
	}
	full := place(t.Context(), x, order("gru"))
	fails(t, full.err, bourse.CodeInsufficient)
	if r := full.decision.Rounds; len(r) != 2 || r[0].Asked != 20 || r[1].Asked != 80 || r[1].Candidates != 100 || len(r[1].Refusals) != bourse.MaxRecorded {
		t.Errorf("%d rounds: %+v", len(r), r)
	}
	if !strings.Contains(full.err.Error(), "gru: 20 workers asked of 100; gru: 80 workers asked of 100;") {
		t.Errorf("refused with %q", full.err)
	}
}

func TestQuoteTakesNothing(t *testing.T) {
	for n, asked := range map[int]int{1: 1, 3: 3, 50: 20} {
		c := floor(n, room(1))
		x := broker(c, nil)
		o := order("gru")
		d, err := x.Quote(t.Context(), o)
		if err != nil || d.Outcome != bourse.OutcomeQuoted || len(d.Rounds) != 1 || len(d.Rounds[0].Ranked) != asked {
			t.Errorf("%d workers: %v\n%+v", n, err, d)
		}
		if c.Calls(Claim) != 0 {
			t.Errorf("%d workers: claimed", n)
		}
		o.Config.Guest.MemoryMB = 1 << 20
		d, err = x.Quote(t.Context(), o)
		fails(t, err, bourse.CodeInsufficient)
		if d.Outcome != bourse.OutcomeRefused || d.Message == "" {
			t.Errorf("%d workers: outcome %s, message %q", n, d.Outcome, d.Message)
		}
		if _, ok := x.Decision(o.ID); ok {
			t.Error("the exchange stores the decision of a quote")
		}
	}
}
