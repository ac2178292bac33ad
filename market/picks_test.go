package market_test

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// atOnce places several orders at the same moment: all orders receive their quotes before any of
// them is claimed. It returns the number of machines on each worker.
func atOnce(t *testing.T, c *Cluster, x *market.Exchange, orders []bourse.Order) map[bourse.WorkerID]int {
	t.Helper()
	c.Break(func(call Call) Fault {
		if call.Verb == Ask {
			return Fault{ReplyDelay: 20 * time.Millisecond}
		}
		return Fault{ReplyDelay: 5 * time.Millisecond}
	})
	defer c.Break(nil)
	var mu sync.Mutex
	var wg sync.WaitGroup
	on := map[bourse.WorkerID]int{}
	for _, o := range orders {
		wg.Go(func() {
			a := place(t.Context(), x, o)
			if a.err != nil {
				t.Errorf("order %s: %v", o.ID, a.err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			on[a.fill.Machine.Worker]++
		})
	}
	wg.Wait()
	return on
}

// TestOrdersOfOneMomentAreSpread checks that machines that a client orders at the same moment are
// spread, although none of their quotes reflects another order. This must be true even if the
// client chooses the orders' IDs, if quotes come from the cache, and if one worker has the best
// quote.
func TestOrdersOfOneMomentAreSpread(t *testing.T) {
	for name, named := range map[string]bool{"ids of the client": true, "ids of the broker": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := floor(3, room(40))
				x := broker(c, nil)
				for range 12 { // machines of another app make w0 fuller than the other workers
					o := order("gru")
					o.App.Name = "other"
					o.Config.Requirements = nil
					if _, refusal, err := c.Link().Claim(t.Context(), c.Candidates("gru")[0], &bourse.Claim{Order: o}); err != nil || refusal != nil {
						t.Fatal(refusal, err)
					}
				}
				for again := range 3 {
					orders := make([]bourse.Order, 3)
					for i := range orders {
						orders[i] = order("gru")
						orders[i].HasChosenID = named
					}
					want := map[bourse.WorkerID]int{"w0": 1, "w1": 1, "w2": 1}
					if on := atOnce(t, c, x, orders); again == 0 && !maps.Equal(on, want) {
						t.Errorf("on %v, want %v", on, want)
					}
				}
				total := map[bourse.WorkerID]int{}
				for _, w := range []bourse.WorkerID{"w1", "w2"} {
					total[w] = int(c.Used(w, bourse.ResourceMemory) / 256)
				}
				if total["w1"] < 2 || total["w2"] < 2 {
					t.Errorf("after nine: %v", total)
				}
			})
		})
	}
}

// TestSpareIsOnAnotherWorker checks that a standby is not placed on its primary machine's worker,
// unless there is no other worker.
func TestSpareIsOnAnotherWorker(t *testing.T) {
	spare := func(of bourse.MachineID) bourse.Order {
		o := order("gru")
		o.SkipLaunch = true
		o.Config.Standbys = []bourse.MachineID{of}
		return o
	}
	c := newCluster(
		Spec{ID: "tight", Region: "gru", Total: room(10)}, // the best fit
		Spec{ID: "wide", Region: "gru", Total: room(90)},
		Spec{ID: "busy", Region: "gru", Total: room(90), Load: 9},
	)
	x := broker(c, nil)
	other := order("gru") // otherwise the worker to which the standby should go would have no machine of the app
	if _, refusal, err := c.Link().Claim(t.Context(), c.Candidates("gru")[1], &bourse.Claim{Order: other}); err != nil || refusal != nil {
		t.Fatal(refusal, err)
	}
	for range 20 {
		served, _, err := x.Place(t.Context(), order("gru"))
		if err != nil {
			t.Fatal(err)
		}
		a := place(t.Context(), x, spare(served.Machine.ID))
		if a.err != nil || a.fill.Machine.Worker == served.Machine.Worker {
			t.Errorf("%v: the spare is on %s, the same worker as the machine that it replaces", a.err, a.fill.Machine.Worker)
		}
	}
	one := floor(1, room(2))
	x = broker(one, nil)
	served, _, err := x.Place(t.Context(), order("gru"))
	if a := place(t.Context(), x, spare(served.Machine.ID)); err != nil || a.err != nil {
		t.Errorf("with a single worker: %v, %v", err, a.err)
	}
}

// TestSuccessorsAreSpread checks that machines that replace others are spread like additional
// machines.
func TestSuccessorsAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 20 {
			c := floor(3, room(40))
			x := broker(c, nil)
			var orders []bourse.Order
			for _, m := range c.Candidates("gru")[:2] {
				fill, refusal, err := c.Link().Claim(t.Context(), m, &bourse.Claim{Order: order("gru")})
				if err != nil || refusal != nil {
					t.Fatal(refusal, err)
				}
				o := order("gru")
				o.HasChosenID = true
				o.Config.Metadata = map[string]string{bourse.MetadataReplaces: string(fill.Machine.ID)}
				orders = append(orders, o)
			}
			if on := atOnce(t, c, x, orders); len(on) != 2 {
				t.Fatalf("both machines are on %v", slices.Collect(maps.Keys(on)))
			}
		}
	})
}

// TestOrdersOfAnotherMomentAreForgotten checks that old picks are removed, whatever happens to
// later orders.
func TestOrdersOfAnotherMomentAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := broker(floor(3, room(400)), nil)
		for range 3 {
			for range 300 {
				if a := place(t.Context(), x, order("gru")); a.err != nil {
					t.Fatal(a.err)
				}
			}
			time.Sleep(3 * time.Second)
			large := order("gru")
			large.Config.Guest.MemoryMB = 1 << 20
			for range 2 {
				fails(t, place(t.Context(), x, large).err, bourse.CodeInsufficient)
				large.ID = bourse.NewOrderID()
			}
		}
	})
}
