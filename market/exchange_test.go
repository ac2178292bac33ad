package market_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// TestInvariant2NoPending checks that, whatever the network and the workers do, an order is decided
// before its deadline. The result is a fill, or an error code that explains why there is none.
func TestInvariant2NoPending(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c := floor(rapid.IntRange(0, 40).Draw(t, "workers"), room(1))
			x := broker(c, nil)
			if rapid.Bool().Draw(t, "quotes stand") {
				_, _ = x.Quote(t.Context(), order("gru")) // fails if there is no worker
			}
			c.Break(badNetwork(t))
			if rapid.Bool().Draw(t, "everything hangs") {
				c.Break(func(Call) Fault { return Fault{LoseRequest: true} })
			}
			o := order("gru")
			o.Race = rapid.IntRange(0, 8).Draw(t, "race")
			o.HasChosenID = rapid.Bool().Draw(t, "named")
			o.Timeout = bourse.Duration(rapid.SampledFrom([]time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Minute}).Draw(t, "within"))
			a := place(t.Context(), x, o)
			c.Quiet()
			if a.took > o.Deadline() {
				t.Fatalf("took %s, deadline %s", a.took, o.Deadline())
			}
			if a.decision.Outcome == "" || a.decision.Times.Total != a.took {
				t.Fatalf("outcome %q after %s, recorded %s", a.decision.Outcome, a.took, a.decision.Times.Total)
			}
			switch code := bourse.CodeOf(a.err); code {
			case "", bourse.CodeInsufficient, bourse.CodeUnavailable, bourse.CodeTimeout:
			default:
				t.Fatalf("code %s: %v", code, a.err)
			}
		})
	})
}

func TestMemoryIsBounded(t *testing.T) {
	c := floor(1, room(0))
	x := broker(c, func(cfg *market.Config) { cfg.MaxDecisions = 10 })
	var ids []bourse.OrderID
	for range 25 {
		o := order("gru")
		ids = append(ids, o.ID)
		place(t.Context(), x, o)
		place(t.Context(), x, o) // placing the order again must not occupy another place
	}
	for i, id := range ids {
		d, ok := x.Decision(id)
		if want := i >= 15; ok != want || (ok && d.Order != id) {
			t.Errorf("order %d: decision found %v, want %v", i, ok, want)
		}
	}
}

func BenchmarkPlace(b *testing.B) {
	for _, n := range []int{1, 2, 6, 100} {
		for name, stand := range map[string]time.Duration{"asked": -1, "standing": time.Hour} {
			b.Run(fmt.Sprintf("workers=%d/%s", n, name), func(b *testing.B) { benchmarkPlace(b, floor(n, room(1<<30)), stand) })
		}
	}
}

func benchmarkPlace(b *testing.B, c *Cluster, stand time.Duration) {
	x := broker(c, standFor(stand))
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := x.Place(b.Context(), order("gru")); err != nil {
			b.Fatal(err)
		}
		c.Clear()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "orders/s")
}
