package market_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// TestStaleQuoteCostsOneRound checks what happens if a claim that is based on the cache is refused.
// A real round must follow, in which that worker is not asked again. The worker's quotes must be
// dropped.
func TestStaleQuoteCostsOneRound(t *testing.T) {
	c := newCluster(
		Spec{ID: "full", Region: "gru", Total: room(2)}, // the best fit
		Spec{ID: "wide", Region: "gru", Total: room(90)},
		Spec{ID: "more", Region: "gru", Total: room(90)},
	)
	fit := market.NewPolicies(map[bourse.Region]*market.Policy{market.AllRegions: policy(t, `{"name":"p","base":"best-fit"}`)}, nil)
	byFit := func(cfg *market.Config) { cfg.Policies = func() *market.Policies { return fit } }
	x, other := broker(c, func(cfg *market.Config) { standFor(time.Hour)(cfg); byFit(cfg) }), broker(c, byFit)
	if _, err := x.Quote(t.Context(), order("gru")); err != nil {
		t.Fatal(err)
	}
	for _, app := range []bourse.AppName{"a", "b"} { // through another broker, so that x does not know that the worker is full
		o := order("gru")
		o.App.Name = app
		if a := place(t.Context(), other, o); a.fill.Machine.Worker != "full" {
			t.Fatalf("filled on %q: %v", a.fill.Machine.Worker, a.err)
		}
	}
	asks := c.Calls(Ask)
	a := place(t.Context(), x, order("gru"))
	if a.err != nil || len(a.decision.Rounds) != 2 {
		t.Fatalf("%v\n%+v", a.err, a.decision.Rounds)
	}
	first, second := a.decision.Rounds[0], a.decision.Rounds[1]
	if first.OldestQuote == 0 || len(first.Claims) != 1 || first.Claims[0].Worker != "full" || first.Claims[0].Refusal == nil {
		t.Errorf("first: %+v", first)
	}
	if second.OldestQuote != 0 || second.Asked != 2 || second.Candidates != 3 || len(second.Ranked) != 2 || len(second.Claims) != 1 {
		t.Errorf("second: %+v", second)
	}
	if got := c.Calls(Ask) - asks; got != 2 {
		t.Errorf("%d asks, want 2", got)
	}
	next := place(t.Context(), x, order("gru"))
	if next.err != nil || stood(&next.decision) != nil {
		t.Errorf("the worker's cached quote is used again: %v\n%+v", next.err, next.decision.Rounds)
	}
}

// TestRefusalIsNeverFromMemory checks that an order is refused only after a real round, even if it
// was first claimed from the cache, and that the decision shows both.
func TestRefusalIsNeverFromMemory(t *testing.T) {
	c := floor(3, room(1))
	fit := market.NewPolicies(map[bourse.Region]*market.Policy{market.AllRegions: policy(t, `{"name":"p","base":"best-fit"}`)}, nil)
	byFit := func(cfg *market.Config) { cfg.Policies = func() *market.Policies { return fit } }
	x, other := broker(c, func(cfg *market.Config) { standFor(time.Hour)(cfg); byFit(cfg) }), broker(c, byFit)
	if _, err := x.Quote(t.Context(), order("gru")); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if a := place(t.Context(), other, order("gru")); a.err != nil {
			t.Fatal(a.err)
		}
	}
	a := place(t.Context(), x, order("gru"))
	fails(t, a.err, bourse.CodeInsufficient)
	const want = "(gru: 1 worker claimed based on an earlier quote; gru: 2 workers asked of 3; cpu: wanted 1 core, most free 0 cores on "
	if r := a.decision.Refusals(); len(r) != 3 || stood(&a.decision) == nil || !strings.Contains(a.err.Error(), want) {
		t.Errorf("%d refusals: %v", len(r), a.err)
	}
}

// TestCachedQuotesRankLikeFreshOnes checks that, if there are no other brokers, orders are placed
// as if all workers had been asked for each of them.
func TestCachedQuotesRankLikeFreshOnes(t *testing.T) {
	claimed := 0
	rapid.Check(t, func(t *rapid.T) {
		region := rapid.SampledFrom([]bourse.Region{"gru", "mad"})
		specs := make([]Spec, rapid.IntRange(1, 7).Draw(t, "workers"))
		for i := range specs {
			specs[i] = Spec{
				ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: region.Draw(t, "region"), Hint: region.Draw(t, "hint"),
				Total: append(room(rapid.Int64Range(1, 20).Draw(t, "room")), bourse.Amount{Resource: "slots", Amount: 5}),
				Load:  rapid.Float64Range(0, 3).Draw(t, "load"),
			}
		}
		seed := rapid.Uint64().Draw(t, "seed")
		sample := rapid.SampledFrom([]int{3, 32}).Draw(t, "sample")
		asking, standing := newCluster(specs...), newCluster(specs...)
		exchange := func(c *Cluster, stand time.Duration) *market.Exchange {
			return broker(c, func(cfg *market.Config) {
				cfg.Rand, cfg.QuoteTTL, cfg.Sample = rand.NewPCG(seed, 0), stand, sample
			})
		}
		x, y := exchange(asking, -1), exchange(standing, time.Hour)
		for range rapid.IntRange(1, 30).Draw(t, "orders") {
			o := anyOrder(t, region)
			want := place(t.Context(), x, o)
			got := place(t.Context(), y, o)
			if stood(&got.decision) != nil {
				claimed++
			}
			sameEnd(t, &want, &got)
		}
	})
	if claimed == 0 {
		t.Error("no order was placed with cached quotes, so nothing was tested")
	}
}

func anyOrder(t *rapid.T, region *rapid.Generator[bourse.Region]) bourse.Order {
	o := order(region.Draw(t, "first choice"))
	if rapid.Bool().Draw(t, "both regions") {
		o.Regions = []bourse.Choice{{"gru", "mad"}}
	}
	o.App.Name = rapid.SampledFrom([]bourse.AppName{"shop", "blog"}).Draw(t, "app")
	o.Config.Guest.MemoryMB = rapid.SampledFrom([]bourse.MiB{256, 512}).Draw(t, "memory")
	if rapid.IntRange(0, 5).Draw(t, "slots") == 0 {
		o.Config.Requirements = bourse.Requirements{"slots": {Count: 1}}
	}
	return o
}

func sameEnd(t *rapid.T, want, got *told) {
	if want.fill.Machine.Worker != got.fill.Machine.Worker || fmt.Sprint(want.err) != fmt.Sprint(got.err) {
		t.Fatalf("filled on %q (%v) with the cache, on %q (%v) without", got.fill.Machine.Worker, got.err, want.fill.Machine.Worker, want.err)
	}
	if len(want.decision.Rounds) != len(got.decision.Rounds) {
		t.Fatalf("%d rounds with the cache, %d without", len(got.decision.Rounds), len(want.decision.Rounds))
	}
	for i := range want.decision.Rounds {
		if w, g := want.decision.Rounds[i].Ranked, got.decision.Rounds[i].Ranked; !reflect.DeepEqual(w, g) {
			t.Fatalf("ranked with the cache\n%+v\nwithout\n%+v", g, w)
		}
	}
}

// TestStaleQuotesRefuseNobody places orders through brokers with different caches, while machines
// exit. Each order must be filled in the first region that has capacity (invariant 3), and no
// worker may be oversold (invariant 4).
func TestStaleQuotesRefuseNobody(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		regions := []bourse.Region{"gru", "mad"}
		var specs []Spec
		for i := range rapid.IntRange(2, 7).Draw(t, "workers") {
			specs = append(specs, Spec{
				ID: bourse.WorkerID(fmt.Sprintf("w%d", i)), Region: regions[i%2], Total: room(rapid.Int64Range(1, 4).Draw(t, "room")),
			})
		}
		c := newCluster(specs...)
		brokers := []*market.Exchange{broker(c, standFor(time.Hour)), broker(c, standFor(time.Hour)), broker(c, nil)}
		var living []bourse.Machine
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(living) > 0 && rapid.IntRange(0, 2).Draw(t, "destroy") == 0 {
				i := rapid.IntRange(0, len(living)-1).Draw(t, "which")
				if _, err := c.Link().Cancel(t.Context(), bourse.Member{ID: living[i].Worker}, living[i].Order); err != nil {
					t.Fatal(err)
				}
				living = slices.Delete(living, i, i+1)
				continue
			}
			want := bourse.Region("")
			for _, s := range slices.Backward(specs) {
				if c.Used(s.ID, bourse.ResourceMemory) < s.Total.Of(bourse.ResourceMemory) && (want == "" || s.Region == "gru") {
					want = s.Region
				}
			}
			a := place(t.Context(), rapid.SampledFrom(brokers).Draw(t, "broker"), order(regions...))
			if got := a.fill.Machine.Region; got != want {
				t.Fatalf("filled in %q, want %q: %v\n%+v", got, want, a.err, a.decision.Rounds)
			}
			if a.err == nil {
				living = append(living, a.fill.Machine)
			}
		}
		for _, s := range specs {
			if used := c.Used(s.ID, bourse.ResourceMemory); used > s.Total.Of(bourse.ResourceMemory) {
				t.Fatalf("%s has %d MiB committed", s.ID, used)
			}
		}
	})
}

// TestBurstFillsEverything checks that, if as many orders are placed at once as there is capacity
// for, all of them are filled, even if the quotes come from the cache.
func TestBurstFillsEverything(t *testing.T) {
	c := floor(4, room(25))
	brokers := []*market.Exchange{broker(c, standFor(time.Hour)), broker(c, standFor(time.Hour))}
	for _, x := range brokers {
		if _, err := x.Quote(t.Context(), order("gru")); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	answers := make([]told, 100)
	for i := range answers {
		wg.Go(func() { answers[i] = place(t.Context(), brokers[i%2], order("gru")) })
	}
	wg.Wait()
	byMemory := 0
	for _, a := range answers {
		if a.err != nil {
			t.Errorf("refused: %v", a.err)
		}
		if r := stood(&a.decision); r != nil && r.Claims[0].Refusal == nil {
			byMemory++
		}
	}
	if byMemory == 0 || c.Calls(Cancel) != 0 {
		t.Errorf("%d of 100 orders filled from the cache, %d cancels", byMemory, c.Calls(Cancel))
	}
}

// TestSlowClaimsKeepCachedQuotes checks that slow claims do not cause requests for quotes, as long
// as the workers answer.
func TestSlowClaimsKeepCachedQuotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(
			Spec{ID: "best", Region: "gru", Total: room(9)},
			Spec{ID: "wide", Region: "gru", Total: room(9000)},
		)
		packing := market.DefaultCurves()
		packing.Spread.Weight = 0 // so that all claims go to the same worker
		x := broker(c, func(cfg *market.Config) { cfg.Policies = always(packing) })
		if _, err := x.Quote(t.Context(), order("gru")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
		c.Break(func(Call) Fault { return Fault{Delay: 200 * time.Millisecond} })
		var wg sync.WaitGroup
		for range 3 { // the third claim is sent 50 ms after the first answer, and 150 ms after the second claim
			wg.Go(func() {
				if a := place(t.Context(), x, order("gru")); a.fill.Machine.Worker != "best" || stood(&a.decision) == nil {
					t.Errorf("%v\n%+v", a.err, a.decision.Rounds)
				}
			})
			time.Sleep(130 * time.Millisecond)
		}
		wg.Wait()
		c.Quiet()
	})
}

// TestSilentWorkerIsNotClaimedFromCache checks that a worker that has not answered a claim is asked
// for a quote before it is sent another claim, and that the waiting order goes to the next worker.
func TestSilentWorkerIsNotClaimedFromCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(
			Spec{ID: "best", Region: "gru", Total: room(9)},
			Spec{ID: "wide", Region: "gru", Total: room(90)},
			Spec{ID: "more", Region: "gru", Total: room(90)},
		)
		x := broker(c, nil)
		if _, err := x.Quote(t.Context(), order("gru")); err != nil {
			t.Fatal(err)
		}
		c.Break(func(call Call) Fault {
			return Fault{LoseRequest: call.Worker == "best"}
		})
		stop := running(t.Context(), x)
		var first told
		var wg sync.WaitGroup
		wg.Go(func() { first = place(t.Context(), x, order("gru")) })
		time.Sleep(251 * time.Millisecond)
		second := place(t.Context(), x, order("gru"))
		if second.err != nil || second.took > 250*time.Millisecond || stood(&second.decision) != nil {
			t.Errorf("took %s: %v\n%+v", second.took, second.err, second.decision.Rounds)
		}
		wg.Wait()
		stop()
		c.Quiet()
		if first.err != nil || first.fill.Machine.Worker == "best" || first.took > first.order.Deadline() {
			t.Errorf("filled on %q after %s: %v", first.fill.Machine.Worker, first.took, first.err)
		}
		if r := stood(&first.decision); r == nil || r.Claims[0].Refusal == nil || r.Claims[0].Refusal.Reason != bourse.RefusedLost {
			t.Errorf("recorded: %+v", first.decision.Rounds)
		}
	})
}
