package market_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// lostAt returns faults for a worker. It receives requests for quotes and claims, but its answers
// to claims are lost. All other messages to it are lost.
func lostAt(id bourse.WorkerID) func(Call) Fault {
	return func(call Call) Fault {
		switch {
		case call.Worker != id || call.Verb == Ask:
			return Fault{}
		case call.Verb == Claim:
			return Fault{LoseReply: true, Reset: true}
		}
		return Fault{LoseRequest: true, Reset: true}
	}
}

// TestUndeliveredCancellationIsRetried checks that, if a claim's answer and the cancellation are
// lost, the order goes to the next worker. The duplicate is destroyed once its worker can be
// reached again.
func TestUndeliveredCancellationIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		x := broker(c, nil)
		defer running(t.Context(), x)()
		var lost bourse.WorkerID
		c.Break(func(call Call) Fault {
			if lost == "" && call.Verb == Claim {
				lost = call.Worker
			}
			return lostAt(lost)(call)
		})
		o := order("gru")
		a := place(t.Context(), x, o)
		synctest.Wait() // until the lost claim has arrived
		if a.err != nil || a.fill.Machine.Worker == lost || len(c.Living(o.ID)) != 2 {
			t.Fatalf("filled on %q, %d machines exist: %v", a.fill.Machine.Worker, len(c.Living(o.ID)), a.err)
		}
		time.Sleep(5 * time.Minute)
		c.Break(nil)
		time.Sleep(15 * time.Second) // longer than the longest backoff with its jitter
		synctest.Wait()
		if living := c.Living(o.ID); len(living) != 1 || living[0].ID != a.fill.Machine.ID {
			t.Errorf("existing machines: %+v", living)
		}
		c.Quiet()
	})
}

func TestRetriesAreFewAndEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1))
		x := broker(c, func(cfg *market.Config) { cfg.CancelTimeout = time.Minute })
		defer running(t.Context(), x)()
		c.Break(lostAt("w0"))
		o := order("gru")
		a := place(t.Context(), x, o)
		fails(t, a.err, bourse.CodeUnavailable)
		time.Sleep(2 * time.Minute)
		tried := c.Calls(Cancel)
		if tried < 5 || tried > 20 {
			t.Errorf("%d tries in a minute", tried)
		}
		time.Sleep(time.Hour)
		if got := c.Calls(Cancel); got != tried {
			t.Errorf("%d more tries after the minute", got-tried)
		}
		c.Quiet()
	})
}

// TestOneWorkerAwayIsTriedOnce checks that an unreachable worker is sent only one cancellation at a
// time, not one for each order.
func TestOneWorkerAwayIsTriedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1000))
		x := broker(c, nil)
		c.Break(lostAt("w0"))
		for range 100 {
			fails(t, place(t.Context(), x, order("gru")).err, bourse.CodeUnavailable)
		}
		before := c.Calls(Cancel)
		stop := running(t.Context(), x)
		time.Sleep(time.Second)
		if got := c.Calls(Cancel) - before; got < 1 || got > 5 {
			t.Errorf("%d cancels in a second for 100 orders", got)
		}
		c.Break(nil)
		time.Sleep(time.Minute)
		stop()
		if used := c.Used("w0", bourse.ResourceMemory); used != 0 {
			t.Errorf("%d MiB are still committed", used)
		}
		c.Quiet()
	})
}

// TestCancelQueueIsBounded checks that the length of the queue is limited: if it is full, the
// oldest cancellation is dropped.
func TestCancelQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1000))
		x := broker(c, func(cfg *market.Config) { cfg.CancelQueue = 3 })
		c.Break(lostAt("w0"))
		orders := make([]bourse.Order, 5)
		for i := range orders {
			orders[i] = order("gru")
			place(t.Context(), x, orders[i])
		}
		c.Break(nil)
		stop := running(t.Context(), x)
		time.Sleep(time.Minute)
		stop()
		for i, o := range orders {
			if lives := len(c.Living(o.ID)) == 1; lives != (i < 2) {
				t.Errorf("order %d: its machine exists: %v", i, lives)
			}
		}
		c.Quiet()
	})
}

// TestRunEnds checks that Run returns when its context is canceled, even in the middle of a
// delivery.
func TestRunEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1))
		c.Break(lostAt("w0"))
		var hangs atomic.Bool
		x := broker(c, func(cfg *market.Config) { cfg.Trader = hanger{cfg.Trader, &hangs} })
		place(t.Context(), x, order("gru"))
		hangs.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- x.Run(ctx) }()
		time.Sleep(time.Second) // virtual time, until the delivery hangs
		cancel()
		synctest.Wait()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Error("Run has not returned")
			<-done
		}
		c.Quiet()
	})
}

type hanger struct {
	market.Trader
	hangs *atomic.Bool
}

func (h hanger) Cancel(ctx context.Context, to bourse.Member, id bourse.OrderID) (bourse.Cancellation, error) {
	if h.hangs.Load() {
		<-ctx.Done()
		return bourse.Cancellation{}, ctx.Err()
	}
	return h.Trader.Cancel(ctx, to, id)
}
