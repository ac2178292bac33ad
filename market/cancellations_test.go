package market_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// loseFirst makes the network lose the answer to the first claim, and all later messages to the
// same worker. The returned function returns that worker.
func loseFirst(c *Cluster) func() bourse.WorkerID {
	var lost bourse.WorkerID
	c.Break(func(call Call) Fault {
		if lost == "" && call.Verb == Claim {
			lost = call.Worker
		}
		return lostAt(lost)(call)
	})
	return func() bourse.WorkerID { return lost }
}

// TestInvariant7CancellationOutlivesItsBroker checks that, if a broker cannot deliver a cancellation and then exits,
// the worker still finds the cancellation (invariants 7 and 9).
func TestInvariant7CancellationOutlivesItsBroker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		stored, link := c.NewCancellations(), c.Link()
		x := broker(c, func(cfg *market.Config) { cfg.Cancellations, cfg.Trader = stored, link })
		lost := loseFirst(c)
		o := order("gru")
		a := place(t.Context(), x, o)
		link.Cut() // the broker ends without ever running Run
		synctest.Wait()
		if a.err != nil || len(c.Living(o.ID)) != 2 {
			t.Fatalf("%d machines exist: %v", len(c.Living(o.ID)), a.err)
		}
		if got, _ := stored.CanceledOn(t.Context(), o.ID); !slices.Equal(got, []bourse.WorkerID{lost()}) {
			t.Fatalf("canceled on %v, want on %s", got, lost())
		}
		stored.Apply()
		if living := c.Living(o.ID); len(living) != 1 || living[0].ID != a.fill.Machine.ID {
			t.Errorf("existing machines: %+v", living)
		}
		c.Quiet()
	})
}

// TestInvariant7CancellationsUnderAnyNetwork checks the same with arbitrary network faults, and a broker that exits
// once its caller has received the answer. When the workers have read the cancellations, the only machine left must be
// the one that was returned. If none was returned, none may be left.
func TestInvariant7CancellationsUnderAnyNetwork(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			c := floor(rapid.IntRange(1, 5).Draw(t, "workers"), room(1))
			stored, link := c.NewCancellations(), c.Link()
			x := broker(c, func(cfg *market.Config) { cfg.Cancellations, cfg.Trader = stored, link })
			c.Break(badNetwork(t, Claim, Cancel))
			o := order("gru")
			o.Race = rapid.IntRange(0, 3).Draw(t, "race")
			o.Timeout = bourse.Duration(rapid.SampledFrom([]time.Duration{50 * time.Millisecond, 10 * time.Second}).Draw(t, "within"))
			ctx, cancel := context.WithTimeout(t.Context(), rapid.SampledFrom([]time.Duration{time.Millisecond, time.Hour}).Draw(t, "patience"))
			defer cancel()
			a := place(ctx, x, o)
			link.Cut()
			c.Quiet() // messages in flight have arrived
			stored.Apply()
			checkOnce(t, c, a)
		})
	})
}

// TestCancellationIsStoredLater checks that a cancellation that could not be written to the view is
// written at the next attempt.
func TestCancellationIsStoredLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		stored := c.NewCancellations()
		stored.Fail(errors.New("no space left on device"))
		x := broker(c, func(cfg *market.Config) { cfg.Cancellations = stored })
		defer running(t.Context(), x)()
		lost := loseFirst(c)
		o := order("gru")
		if a := place(t.Context(), x, o); a.err != nil {
			t.Fatal(a.err)
		}
		time.Sleep(time.Minute)
		stored.Fail(nil)
		time.Sleep(15 * time.Second)
		if got, _ := stored.CanceledOn(t.Context(), o.ID); !slices.Equal(got, []bourse.WorkerID{lost()}) {
			t.Errorf("canceled on %v, want on %s", got, lost())
		}
		c.Quiet()
	})
}

// TestStoredCancellationsNeedLittleMemory checks that a cancellation that is in the view is retried
// only for a short time, and that nothing is lost if the queue overflows.
func TestStoredCancellationsNeedLittleMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1000))
		stored := c.NewCancellations()
		x := broker(c, func(cfg *market.Config) { cfg.Cancellations, cfg.CancelQueue = stored, 3 })
		c.Break(lostAt("w0"))
		orders := make([]bourse.Order, 8)
		for i := range orders {
			orders[i] = order("gru")
			fails(t, place(t.Context(), x, orders[i]).err, bourse.CodeUnavailable)
		}
		stop := running(t.Context(), x)
		time.Sleep(2 * time.Minute)
		tried := c.Calls(Cancel)
		time.Sleep(10 * time.Minute)
		stop()
		if got := c.Calls(Cancel); got != tried {
			t.Errorf("%d tries after two minutes", got-tried)
		}
		stored.Apply()
		if used := c.Used("w0", bourse.ResourceMemory); used != 0 {
			t.Errorf("%d MiB are still committed", used)
		}
		c.Quiet()
	})
}

// TestRepeatedOrderIgnoresCanceledFills checks that the fill of a worker that has returned does not
// count if the order was canceled there, even if the worker does not know that yet. The machine
// that the caller receives must not be destroyed.
func TestRepeatedOrderIgnoresCanceledFills(t *testing.T) {
	for name, others := range map[string]int{"the other has room": 1, "no other worker is there": 0} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := floor(1+others, room(1))
				stored := c.NewCancellations()
				o := order("gru")
				o.HasChosenID, o.FirstTry = true, true
				c.Break(func(call Call) Fault {
					if call.Worker != "w0" {
						return Fault{Unreachable: true}
					}
					return lostAt("w0")(call)
				})
				first := broker(c, func(cfg *market.Config) { cfg.Cancellations = stored })
				fails(t, place(t.Context(), first, o).err, bourse.CodeUnavailable)
				synctest.Wait() // until the lost claim has arrived
				if len(c.Living(o.ID)) != 1 {
					t.Fatal("no machine was left on w0")
				}
				c.Break(nil)
				second := broker(c, func(cfg *market.Config) { cfg.Cancellations = stored })
				o.FirstTry = false
				a := place(t.Context(), second, o)
				stored.Apply()
				living := c.Living(o.ID)
				if len(living) != others || (a.err == nil) != (others == 1) || (others == 1 && living[0].ID != a.fill.Machine.ID) {
					t.Errorf("the broker returned %+v, %v; existing machines: %+v", a.fill.Machine, a.err, living)
				}
				c.Quiet()
			})
		})
	}
}

// TestAQuoteCancelsNothing checks that Quote changes nothing, even if the order was canceled on a
// worker.
func TestAQuoteCancelsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		stored := c.NewCancellations()
		x := broker(c, func(cfg *market.Config) { cfg.Cancellations = stored })
		o := order("gru")
		o.HasChosenID = true
		if err := stored.RecordCancellation(context.Background(), o.ID, "w0"); err != nil {
			t.Fatal(err)
		}
		d, err := x.Quote(t.Context(), o)
		if err != nil || c.Calls(Cancel) != 0 {
			t.Fatalf("%d cancels, %v", c.Calls(Cancel), err)
		}
		if r := d.Refusals(); len(r) != 1 || r[0].Worker != "w0" || r[0].Reason != bourse.RefusedCanceled {
			t.Errorf("refusals: %+v", r)
		}
	})
}
