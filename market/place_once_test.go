package market_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// badNetwork draws the faults of a network that loses, delays, repeats and reorders messages.
func badNetwork(t *rapid.T, verbs ...Verb) func(Call) Fault {
	p := func(name string) float64 { return rapid.SampledFrom([]float64{0, 0.05, 0.3, 0.7}).Draw(t, name) }
	rates := Rates{
		Lose: p("lose"), Refuse: p("refuse"), Delay: p("delay"), Repeat: p("repeat"), Verbs: verbs,
		Longest: rapid.SampledFrom([]time.Duration{5 * time.Millisecond, 300 * time.Millisecond, 6 * time.Second}).Draw(t, "longest"),
	}
	return Chaos(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), rates)
}

// repair repairs the network, and waits until no messages are in flight and all cancellations have
// been delivered.
func repair(c *Cluster) {
	c.Break(nil)
	time.Sleep(2 * time.Minute) // virtual time; longer than every backoff, but too short for a cancellation to expire
	synctest.Wait()
}

// TestInvariant7Once places an order over a network with arbitrary faults. When no messages are in
// flight any more, the order must have exactly one machine, the one that its caller has received,
// or none if the caller has received none.
func TestInvariant7Once(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c := floor(rapid.IntRange(1, 5).Draw(t, "workers"), room(3))
			x := broker(c, nil)
			stop := running(t.Context(), x)
			if rapid.Bool().Draw(t, "quotes stand") {
				if _, err := x.Quote(t.Context(), order("gru")); err != nil {
					t.Fatal(err)
				}
			}
			c.Break(badNetwork(t))
			var wg sync.WaitGroup
			answers := make([]told, rapid.IntRange(1, 8).Draw(t, "orders"))
			for i := range answers {
				o := order("gru")
				o.Race = rapid.IntRange(0, 3).Draw(t, "race")
				o.Timeout = bourse.Duration(rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 2 * time.Second, 10 * time.Second}).Draw(t, "within"))
				retryFactor := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, time.Hour}).Draw(t, "patience")
				wg.Go(func() {
					ctx, cancel := context.WithTimeout(t.Context(), retryFactor)
					defer cancel()
					answers[i] = place(ctx, x, o)
				})
			}
			wg.Wait()
			repair(c)
			stop()
			c.Quiet()
			for _, a := range answers {
				checkOnce(t, c, a)
			}
			checkLedger(t, c)
		})
	})
}

func checkOnce(t *rapid.T, c *Cluster, a told) {
	living := c.Living(a.order.ID)
	switch {
	case a.err != nil && len(living) != 0:
		t.Fatalf("the broker returned %v, but %d machines exist", a.err, len(living))
	case a.err == nil && len(living) != 1:
		t.Fatalf("the broker returned machine %s, but %d machines exist\n%+v", a.fill.Machine.ID, len(living), a.decision)
	case a.err == nil && living[0].ID != a.fill.Machine.ID:
		t.Fatalf("the broker returned machine %s, but machine %s exists", a.fill.Machine.ID, living[0].ID)
	}
}

// checkLedger checks that no worker's committed memory is out of bounds, because the fake worker
// itself might have an error.
func checkLedger(t *rapid.T, c *Cluster) {
	for _, m := range c.Candidates("gru") {
		if used := c.Used(m.ID, bourse.ResourceMemory); used < 0 || used > 3*256 {
			t.Fatalf("%s has %d MiB committed", m.ID, used)
		}
	}
}

// TestInvariant7OnceAcrossBrokers sends the same order to two brokers at about the same time. The
// network delays, repeats and reorders messages, and loses requests for quotes. If any caller
// receives a machine, exactly one must be left. If the network also loses claims and cancellations,
// the machine may be lost as well, because a broker that has lost the answer to its claim cancels
// the fill that the other broker has found. There must never be two machines.
func TestInvariant7OnceAcrossBrokers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c := floor(rapid.IntRange(1, 4).Draw(t, "workers"), room(5))
			rates := Rates{
				Delay: 0.7, Repeat: rapid.SampledFrom([]float64{0, 0.3}).Draw(t, "repeat"),
				Longest: rapid.SampledFrom([]time.Duration{time.Millisecond, 50 * time.Millisecond, 400 * time.Millisecond}).Draw(t, "longest"),
			}
			seed := rapid.Uint64().Draw(t, "seed")
			calm, lossy := Chaos(rand.New(rand.NewPCG(seed, 0)), rates), rates
			lossy.Lose = rapid.SampledFrom([]float64{0.1, 0.5}).Draw(t, "lose")
			losing := Chaos(rand.New(rand.NewPCG(seed, 1)), lossy)
			lostClaims := rapid.Bool().Draw(t, "claims are lost")
			c.Break(func(call Call) Fault {
				if call.Verb == Ask || lostClaims {
					return losing(call)
				}
				return calm(call)
			})
			o := order("gru")
			o.HasChosenID = true
			answers := make([]told, 2)
			stops := make([]func(), 2)
			var wg sync.WaitGroup
			for i := range answers {
				x := broker(c, nil)
				stops[i] = running(t.Context(), x)
				offset := time.Duration(rapid.IntRange(0, 300).Draw(t, "offset")) * time.Millisecond
				wg.Go(func() {
					time.Sleep(offset)
					answers[i] = place(t.Context(), x, o)
				})
			}
			wg.Wait()
			repair(c)
			stops[0]()
			stops[1]()
			c.Quiet()
			living := c.Living(o.ID)
			if len(living) > 1 {
				t.Fatalf("%d machines exist: on %s and %s\n%+v\n%+v", len(living), living[0].Worker, living[1].Worker, answers[0].decision, answers[1].decision)
			}
			filled := answers[0].err == nil || answers[1].err == nil
			if !lostClaims && filled != (len(living) == 1) {
				t.Fatalf("%d machines exist; the brokers returned %v and %v", len(living), answers[0].err, answers[1].err)
			}
		})
	})
}

func TestNamedOrderIsFoundAgain(t *testing.T) {
	c := floor(5, room(5))
	o := order("gru")
	o.HasChosenID = true
	first := place(t.Context(), broker(c, nil), o)
	second := place(t.Context(), broker(c, nil), o)
	if first.err != nil || second.err != nil {
		t.Fatal(first.err, second.err)
	}
	if !second.fill.Repeated || second.fill.Machine.ID != first.fill.Machine.ID {
		t.Errorf("the repeated order got %s (again: %v), want %s", second.fill.Machine.ID, second.fill.Repeated, first.fill.Machine.ID)
	}
	if got := second.decision.Machine; got != first.fill.Machine.ID {
		t.Errorf("the decision contains machine %s", got)
	}
	if got := c.Calls(Claim); got != 1 {
		t.Errorf("%d claims, want 1", got)
	}
}

// TestNamedOrderIsFoundInALaterChoice checks that a named order is found in any of its regions,
// even if it would now be placed in another one.
func TestNamedOrderIsFoundInALaterChoice(t *testing.T) {
	c := newCluster(
		Spec{ID: "a", Region: "gru", Total: room(1)},
		Spec{ID: "b", Region: "mad", Total: room(1)},
	)
	c.Break(func(call Call) Fault { return Fault{Unreachable: call.Worker == "a"} })
	o := order("gru", "mad")
	o.HasChosenID, o.FirstTry = true, true
	first := place(t.Context(), broker(c, nil), o)
	c.Break(nil)
	o.FirstTry = false
	second := place(t.Context(), broker(c, nil), o)
	if first.err != nil || first.fill.Machine.Worker != "b" {
		t.Fatalf("filled on %q: %v", first.fill.Machine.Worker, first.err)
	}
	if second.err != nil || second.fill.Machine.ID != first.fill.Machine.ID {
		t.Errorf("the repeated order got %q: %v", second.fill.Machine.ID, second.err)
	}
	if got := c.Calls(Claim); got != 1 {
		t.Errorf("%d claims, want 1", got)
	}
}

// TestTwoFillsOfANamedOrderBecomeOne checks that two brokers that do not see each other's fill in
// their first round keep the older fill. If both are equally old, they keep the fill of the worker
// with the smaller ID. The other machine is destroyed.
func TestTwoFillsOfANamedOrderBecomeOne(t *testing.T) {
	for name, delay := range map[string]map[bourse.WorkerID]time.Duration{
		"w0 is older":      {"w0": 10 * time.Millisecond, "w1": 20 * time.Millisecond},
		"w1 is older":      {"w0": 20 * time.Millisecond, "w1": 10 * time.Millisecond},
		"both equally old": {"w0": 10 * time.Millisecond, "w1": 10 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { twoFills(t, delay) }) })
	}
}

func twoFills(t *testing.T, delay map[bourse.WorkerID]time.Duration) {
	c := floor(2, room(5))
	c.Break(func(call Call) Fault {
		if call.Verb != Claim {
			return Fault{}
		}
		return Fault{Delay: delay[call.Worker]}
	})
	want := bourse.WorkerID("w0")
	if delay["w1"] < delay["w0"] {
		want = "w1"
	}
	o := order("gru")
	o.HasChosenID = true
	var wg sync.WaitGroup
	answers := make([]told, 2)
	for i, id := range []bourse.WorkerID{"w0", "w1"} {
		x := broker(c, func(cfg *market.Config) { cfg.Trader = onlyClaims{cfg.Trader, id} })
		wg.Go(func() { answers[i] = place(t.Context(), x, o) })
	}
	wg.Wait()
	living := c.Living(o.ID)
	if len(living) != 1 || living[0].Worker != want {
		t.Fatalf("%d machines exist, want one on %s: %+v", len(living), want, living)
	}
	for i, a := range answers {
		mine := bourse.WorkerID([]string{"w0", "w1"}[i]) == want
		switch {
		case a.err != nil:
			t.Errorf("broker %d: %v", i, a.err)
		case mine && a.fill.Machine.ID != living[0].ID:
			t.Errorf("the winner's broker returned machine %s", a.fill.Machine.ID)
		case !mine && delay["w0"] == delay["w1"] && !a.fill.Repeated && a.fill.Machine.ID == living[0].ID:
			t.Error("the loser's broker reports the fill as its own")
		}
	}
}

// onlyClaims is a Trader whose claims can reach only one worker.
type onlyClaims struct {
	market.Trader
	id bourse.WorkerID
}

func (o onlyClaims) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	if to.ID != o.id {
		return nil, nil, bourse.Errorf(bourse.CodeUnavailable, "no route")
	}
	return o.Trader.Claim(ctx, to, claim)
}

// TestInvariant9BrokersKeepNothing stops a broker at an arbitrary moment of an order. Repeating the
// order through another broker must find the machine or create exactly one.
func TestInvariant9BrokersKeepNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c := floor(rapid.IntRange(1, 4).Draw(t, "workers"), room(5))
			c.Break(Chaos(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)), Rates{
				Delay: 1, Longest: 20 * time.Millisecond, Repeat: 0.3,
			}))
			link := c.Link()
			dying := market.New(market.Config{Directory: c, Trader: link, Rand: rand.NewPCG(3, 4)})
			o := order("gru")
			o.HasChosenID = true
			var wg sync.WaitGroup
			wg.Go(func() { place(t.Context(), dying, o) }) // the answer is lost
			time.Sleep(time.Duration(rapid.IntRange(0, 100).Draw(t, "dies after ms")) * time.Millisecond)
			link.Cut()
			wg.Wait()
			c.Quiet()
			before := c.Living(o.ID)

			again := place(t.Context(), broker(c, nil), o)
			c.Quiet()
			after := c.Living(o.ID)
			if again.err != nil || len(after) != 1 || after[0].ID != again.fill.Machine.ID {
				t.Fatalf("the broker returned %q, %v; %d machines exist", again.fill.Machine.ID, again.err, len(after))
			}
			if len(before) == 1 && before[0].ID != after[0].ID {
				t.Fatalf("machine %s existed, but machine %s was created", before[0].ID, after[0].ID)
			}
		})
	})
}
