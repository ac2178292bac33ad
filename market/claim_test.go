package market_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

func TestClaimsFallThroughInRankOrder(t *testing.T) {
	c := floor(6, room(1))
	var tried []bourse.WorkerID
	x := broker(c, func(cfg *market.Config) {
		cfg.Trader = claimer{cfg.Trader, func(to bourse.Member) (*bourse.Refusal, error) {
			tried = append(tried, to.ID)
			switch len(tried) {
			case 1:
				return &bourse.Refusal{Reason: bourse.RefusedResource, Resource: "memory", Wanted: 256, Free: 3}, nil
			case 2:
				return nil, bourse.Errorf(bourse.CodeUnavailable, "connection refused")
			case 3:
				return nil, errors.New("connection reset")
			}
			return nil, nil
		}}
	})
	o := order("gru")
	a := place(t.Context(), x, o)
	if a.err != nil {
		t.Fatal(a.err)
	}
	round := a.decision.Rounds[0]
	for i, id := range tried {
		if round.Ranked[i].Worker != id {
			t.Errorf("claim %d went to %s, want %s according to the ranking", i, id, round.Ranked[i].Worker)
		}
	}
	var reasons []bourse.RefusalReason
	for _, claim := range round.Claims {
		if claim.Refusal != nil {
			reasons = append(reasons, claim.Refusal.Reason)
		}
	}
	if want := []bourse.RefusalReason{"resource", "no_answer", "lost_answer"}; len(tried) != 4 || !slices.Equal(reasons, want) {
		t.Errorf("claimed on %v, refused because of %v; want four claims and %v", tried, reasons, want)
	}
	if got := c.Calls(Cancel); got != 1 {
		t.Errorf("%d cancels, want only the one after the lost answer", got)
	}
}

// claimer is a Trader that answers some claims itself, with the result of first.
type claimer struct {
	market.Trader
	first func(bourse.Member) (*bourse.Refusal, error)
}

func (c claimer) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	if r, err := c.first(to); r != nil || err != nil {
		return nil, r, err
	}
	return c.Trader.Claim(ctx, to, claim)
}

// TestLoneCandidateIsNotAsked checks that a lone candidate is claimed without being asked for a
// quote, and that the decision shows that.
func TestLoneCandidateIsNotAsked(t *testing.T) {
	c := floor(1, bourse.Amounts{{Resource: bourse.ResourceCPU, Amount: 9000}, {Resource: bourse.ResourceMemory, Amount: 300}})
	x := broker(c, nil)
	yes, no := place(t.Context(), x, order("gru")), place(t.Context(), x, order("gru"))
	if yes.err != nil {
		t.Fatal(yes.err)
	}
	fails(t, no.err, bourse.CodeInsufficient)
	if got := c.Calls(Ask); got != 0 {
		t.Errorf("%d asks, want none", got)
	}
	if r := yes.decision.Rounds[0]; r.Asked != 1 || len(r.Ranked) != 0 || len(r.Claims) != 1 {
		t.Errorf("recorded: %+v", r)
	}
	const want = "insufficient resources available to fulfill request: could not reserve resource for machine: " +
		"insufficient memory available to fulfill request (gru: 1 worker asked; memory: wanted 256 MiB, most free 44 MiB on w0)"
	if no.err.Error() != want {
		t.Errorf("refused with\n %q, want\n %q", no.err, want)
	}
}

// TestCallerLeaves checks that no machine is left behind if the caller disconnects.
func TestCallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		ctx, leave := context.WithCancel(t.Context())
		x := broker(c, func(cfg *market.Config) { cfg.Trader = leaver{cfg.Trader, leave} })
		o := order("gru")
		a := place(ctx, x, o)
		fails(t, a.err, bourse.CodeCanceled)
		if a.decision.Outcome != bourse.OutcomeCanceled {
			t.Errorf("outcome %s", a.decision.Outcome)
		}
		if living := c.Living(o.ID); len(living) != 0 {
			t.Errorf("machine %s exists", living[0].ID)
		}
		if d, ok := x.Decision(o.ID); !ok || d.Outcome != bourse.OutcomeCanceled || len(d.Rounds) != 1 {
			t.Errorf("decision found: %v, %+v", ok, d)
		}
	})
}

// leaver is a Trader whose caller disconnects just before the answer to a claim arrives.
type leaver struct {
	market.Trader
	leave func()
}

func (l leaver) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	fill, refusal, err := l.Trader.Claim(ctx, to, claim)
	l.leave()
	<-ctx.Done()
	return fill, refusal, err
}

// TestHangingClaimLeavesTimeForOthers checks that, if other workers are willing, a hanging worker
// uses up only half of the time.
func TestHangingClaimLeavesTimeForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		var hung bourse.WorkerID
		c.Break(func(call Call) Fault {
			if call.Verb == Claim && (hung == "" || hung == call.Worker) {
				hung = call.Worker
				return Fault{LoseReply: true}
			}
			return Fault{}
		})
		o := order("gru")
		a := place(t.Context(), broker(c, nil), o)
		c.Quiet()
		if a.err != nil || a.fill.Machine.Worker == hung {
			t.Fatalf("filled on %q: %v", a.fill.Machine.Worker, a.err)
		}
		if living := c.Living(o.ID); len(living) != 1 {
			t.Errorf("%d machines exist", len(living))
		}
	})
}

// TestDeadlineCancelsTheClaim checks that, if the deadline passes in the middle of a claim, the
// cancellation is delivered before the caller receives the error.
func TestDeadlineCancelsTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1))
		c.Break(func(call Call) Fault {
			if call.Verb == Claim {
				return Fault{LoseReply: true}
			}
			return Fault{Delay: 100 * time.Millisecond}
		})
		o := order("gru")
		o.Timeout = bourse.Duration(2 * time.Second)
		a := place(t.Context(), broker(c, nil), o)
		fails(t, a.err, bourse.CodeTimeout)
		if living := c.Living(o.ID); len(living) != 0 || a.took > 2*time.Second {
			t.Errorf("%d machines exist after %s", len(living), a.took)
		}
		if a.decision.Outcome != bourse.OutcomeTimeout || !strings.Contains(a.err.Error(), "the answer to a claim was lost (1 worker)") {
			t.Errorf("%s: %v", a.decision.Outcome, a.err)
		}
		c.Quiet()
	})
}

// TestClaimCarriesTheDecision checks that the worker stores the decision that led to its claim.
func TestClaimCarriesTheDecision(t *testing.T) {
	c := floor(3, room(1))
	o := order("gru")
	a := place(t.Context(), broker(c, nil), o)
	kept, ok := c.Kept(o.ID)
	if a.err != nil || !ok {
		t.Fatal(a.err, ok)
	}
	if kept.Order != o.ID || len(kept.Rounds) != 1 || len(kept.Rounds[0].Ranked) != 3 || len(kept.Rounds[0].Claims) != 0 {
		t.Errorf("decision on the worker: %+v", kept)
	}
	d := a.decision
	if d.Outcome != bourse.OutcomeFilled || d.Machine != a.fill.Machine.ID || d.Worker != a.fill.Machine.Worker || len(d.Rounds[0].Claims) != 1 {
		t.Errorf("decision: %+v", d)
	}
	if parts := d.Rounds[0].Ranked[0].Parts; len(parts) != 7 { // cpu, memory, image, spread, load, stranded, position
		t.Errorf("parts: %+v", parts)
	}
}

// TestResultOfAnotherWorkerIsRefused checks that a fill is rejected if the worker reports another
// worker's machine as its own. Otherwise, the caller could stop or destroy the wrong machine.
func TestResultOfAnotherWorkerIsRefused(t *testing.T) {
	other := bourse.WorkerTag(2)
	for name, lie := range map[string]*Lies{
		"a claim": {Claim: func(f *bourse.Fill, r *bourse.Refusal, err error) (*bourse.Fill, *bourse.Refusal, error) {
			f.Machine.ID = bourse.NewMachineID(other)
			return f, r, err
		}},
		"a quote": {Quote: func(q *bourse.Quote) {
			q.Refusal = nil
			q.Filled = &bourse.Machine{ID: bourse.NewMachineID(other), Order: "01M7Y71X6A2J5M8V0B6R3W9C4D", Worker: "w0", Region: "gru"}
		}},
	} {
		c := floor(1, room(2))
		c.Tell("w0", lie)
		o := order("gru")
		o.ID, o.HasChosenID, o.FirstTry = "01M7Y71X6A2J5M8V0B6R3W9C4D", name == "a quote", true
		if a := place(t.Context(), broker(c, nil), o); a.err == nil {
			t.Errorf("%s: accepted the statement that machine %s is on w0", name, a.fill.Machine.ID)
		}
		if living := c.Living(o.ID); len(living) != 0 {
			t.Errorf("%s: %d machines exist", name, len(living))
		}
	}
}
