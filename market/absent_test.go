package market_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// fillLost places an order whose ID the caller has chosen. Worker w0 fills the order, but its
// answer is lost, and w0 is absent from then on.
func fillLost(t *testing.T, c *Cluster) bourse.Order {
	t.Helper()
	o := order("gru")
	o.HasChosenID = true
	x := broker(c, nil)
	c.Break(func(call Call) Fault {
		if call.Verb == Ask {
			return Fault{}
		}
		return Fault{LoseRequest: call.Verb == Cancel, LoseReply: true, Reset: true}
	})
	c.Lose("w1", time.Now().Add(-time.Hour)) // absent since before the order was created, so that w0 is claimed
	fails(t, place(t.Context(), x, o).err, bourse.CodeTimeout)
	c.Break(nil)
	c.Find("w1")
	c.Lose("w0", time.Now())
	if n := len(c.Living(o.ID)); n != 1 {
		t.Fatalf("%d machines fill the order, want only that on w0", n)
	}
	return o
}

// TestARepetitionWaitsForAnAbsentWorker checks that, while the worker that has filled an order is
// absent, the repeated order is neither refused nor filled again. Once the worker is back, the
// repeated order finds the machine.
func TestARepetitionWaitsForAnAbsentWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		o := fillLost(t, c)
		for range 3 {
			time.Sleep(time.Hour)
			fails(t, place(t.Context(), broker(c, nil), o).err, bourse.CodeUnavailable)
		}
		c.Find("w0")
		a := place(t.Context(), broker(c, nil), o)
		if a.err != nil || a.fill.Machine.Worker != "w0" || len(c.Living(o.ID)) != 1 {
			t.Errorf("the broker returned %+v, %v; existing machines: %+v", a.fill.Machine, a.err, c.Living(o.ID))
		}
	})
}

// TestRepetitionSeesReturningWorker checks that a repeated order does not miss a worker that
// returns while the directory is being read. Either the worker must be asked, or the order must
// wait for it.
func TestRepetitionSeesReturningWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		o := fillLost(t, c)
		x := broker(c, func(cfg *market.Config) { cfg.Directory = comesBack{c, "w0"} })
		if a := place(t.Context(), x, o); bourse.CodeOf(a.err) != bourse.CodeUnavailable || len(c.Living(o.ID)) != 1 {
			t.Errorf("the broker returned %+v, %v; existing machines: %+v", a.fill, a.err, c.Living(o.ID))
		}
		a := place(t.Context(), x, o)
		if a.err != nil || a.fill.Machine.Worker != "w0" || len(c.Living(o.ID)) != 1 {
			t.Errorf("the broker returned %+v, %v; existing machines: %+v", a.fill, a.err, c.Living(o.ID))
		}
	})
}

// comesBack is a directory in which a worker returns right after each read.
type comesBack struct {
	*Cluster
	id bourse.WorkerID
}

func (d comesBack) Candidates(region bourse.Region) []bourse.Member {
	defer d.Find(d.id)
	return d.Cluster.Candidates(region)
}

func (d comesBack) All() ([]bourse.Member, []bourse.Absence) {
	defer d.Find(d.id)
	return d.Cluster.All()
}

// TestARepetitionWaitsForASilentWorker checks that the result is the same if the worker is a member
// but does not answer. If the order was canceled on the worker, a repeated order does not wait for
// the worker.
func TestARepetitionWaitsForASilentWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		o := fillLost(t, c)
		c.Find("w0")
		c.Break(func(call Call) Fault { return Fault{Unreachable: call.Worker == "w0"} })
		a := place(t.Context(), broker(c, nil), o)
		fails(t, a.err, bourse.CodeUnavailable)
		if !strings.Contains(a.err.Error(), "w0") {
			t.Errorf("the error does not name the worker: %v", a.err)
		}
		stored := c.NewCancellations()
		if err := stored.RecordCancellation(t.Context(), o.ID, "w0"); err != nil {
			t.Fatal(err)
		}
		a = place(t.Context(), broker(c, func(cfg *market.Config) { cfg.Cancellations = stored }), o)
		if a.err != nil || a.fill.Machine.Worker != "w1" {
			t.Errorf("canceled at w0: filled on %q, %v; want w1", a.fill.Machine.Worker, a.err)
		}
	})
}

// TestAFreshOrderDoesNotWait checks that an order that was created after a worker became absent is
// filled immediately. The same is true for an order that its caller has marked as never sent
// before.
func TestAFreshOrderDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(5))
		c.Lose("w0", time.Now())
		old := order("gru")
		old.HasChosenID = true
		fails(t, place(t.Context(), broker(c, nil), old).err, bourse.CodeUnavailable)
		old.FirstTry = true
		if a := place(t.Context(), broker(c, nil), old); a.err != nil {
			t.Errorf("a first try: %v", a.err)
		}
		time.Sleep(bourse.MaxSkew + time.Second)
		fresh := order("gru")
		fresh.HasChosenID = true
		if a := place(t.Context(), broker(c, nil), fresh); a.err != nil {
			t.Errorf("a fresh order: %v", a.err)
		}
	})
}

// TestRepetitionWaitsOnlyForPossibleFillers checks that an absent worker does not delay an order
// that it cannot have filled because of the order's regions, volume or reservation.
func TestRepetitionWaitsOnlyForPossibleFillers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(
			Spec{ID: "a", Region: "gru", Total: room(1)},
			Spec{ID: "b", Region: "mad", Total: room(1)},
		)
		c.Lose("b", time.Now())
		o := order("gru")
		o.HasChosenID = true
		if a := place(t.Context(), broker(c, nil), o); a.err != nil {
			t.Errorf("an order for gru waits for a worker of mad: %v", a.err)
		}
	})
}

// TestNoWorkersIsInsufficientOnlyOnceKnown checks the error for an order that no worker has
// refused. It is insufficient_capacity only if it is known that there are no workers.
func TestNoWorkersIsInsufficientOnlyOnceKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, named := range []bool{false, true} {
			c := floor(1, room(1))
			o := order("gru")
			o.HasChosenID, o.FirstTry = named, true
			c.Lose("w0", time.Now())
			fails(t, place(t.Context(), broker(c, nil), o).err, bourse.CodeUnavailable)
			time.Sleep(bourse.LostAfter + time.Second) // now w0 is lost for good
			fails(t, place(t.Context(), broker(c, nil), o).err, bourse.CodeInsufficient)
			nowhere := order("mad")
			fails(t, place(t.Context(), broker(c, nil), nowhere).err, bourse.CodeInsufficient)
		}
	})
}

// TestAbsentWorkerReturnsWithFill checks that, if the worker that has filled an order is declared
// lost, another worker fills the order. If the first worker returns after all, its machine is
// destroyed.
func TestAbsentWorkerReturnsWithFill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		o := fillLost(t, c)
		stored := c.NewCancellations()
		x := broker(c, func(cfg *market.Config) { cfg.Cancellations = stored })
		time.Sleep(bourse.LostAfter - time.Second)
		fails(t, place(t.Context(), x, o).err, bourse.CodeUnavailable)
		time.Sleep(2 * time.Second)
		a := place(t.Context(), x, o)
		if a.err != nil || a.fill.Machine.Worker != "w1" {
			t.Fatalf("filled on %q, %v; want w1", a.fill.Machine.Worker, a.err)
		}
		if n := len(c.Living(o.ID)); n != 2 {
			t.Fatalf("%d machines, want those on w0 and w1", n)
		}
		c.Find("w0")
		stored.Apply()
		if left := c.Living(o.ID); len(left) != 1 || left[0].ID != a.fill.Machine.ID {
			t.Errorf("after w0's return, the existing machines are %+v, want that on w1", left)
		}
	})
}

// TestALeavingWorkerIsAsked checks that a worker that is leaving is asked whether it has filled the
// order, but does not fill any more orders.
func TestALeavingWorkerIsAsked(t *testing.T) {
	c := floor(2, room(5))
	o := order("gru")
	o.HasChosenID = true
	first := place(t.Context(), broker(c, nil), o)
	if first.err != nil {
		t.Fatal(first.err)
	}
	c.Leave(first.fill.Machine.Worker)
	again := place(t.Context(), broker(c, nil), o)
	if again.err != nil || again.fill.Machine.ID != first.fill.Machine.ID {
		t.Errorf("the repeated order got %q, %v; want %q", again.fill.Machine.ID, again.err, first.fill.Machine.ID)
	}
	other := order("gru")
	other.HasChosenID = true
	if a := place(t.Context(), broker(c, nil), other); a.err != nil || a.fill.Machine.Worker == first.fill.Machine.Worker {
		t.Errorf("a new order is filled on %q, %v; want the worker that stays", a.fill.Machine.Worker, a.err)
	}
}

// TestACallerMayLeaveAndAskAnother checks that a caller may disconnect from one broker and repeat
// the order through another one. The caller keeps the machine that the second broker finds, because
// the first one does not cancel the order.
func TestACallerMayLeaveAndAskAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(1, room(1))
		o := order("gru")
		o.HasChosenID = true
		c.Break(func(call Call) Fault {
			if call.Verb == Claim {
				return Fault{ReplyDelay: time.Second}
			}
			return Fault{}
		})
		ctx, leave := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = place(ctx, broker(c, nil), o)
		}()
		time.Sleep(500 * time.Millisecond) // the claim has been sent, but not answered
		leave()
		a := place(t.Context(), broker(c, nil), o)
		<-done
		c.Quiet()
		if living := c.Living(o.ID); a.err != nil || len(living) != 1 || living[0].ID != a.fill.Machine.ID {
			t.Errorf("the broker returned %+v, %v; existing machines: %+v", a.fill.Machine, a.err, living)
		}
	})
}

// TestSupersededTryIsUnknown checks that an attempt that was superseded by a later one does not
// result in a refusal. The caller has to repeat the order to learn its outcome.
func TestSupersededTryIsUnknown(t *testing.T) {
	c := floor(2, room(5))
	for _, id := range []bourse.WorkerID{"w0", "w1"} {
		c.Tell(id, &Lies{Claim: func(*bourse.Fill, *bourse.Refusal, error) (*bourse.Fill, *bourse.Refusal, error) {
			return nil, &bourse.Refusal{Reason: bourse.RefusedSuperseded}, nil
		}})
	}
	o := order("gru")
	o.HasChosenID = true
	a := place(t.Context(), broker(c, nil), o)
	fails(t, a.err, bourse.CodeTimeout)
	if n := c.Calls(Claim); n != 1 {
		t.Errorf("%d claims, want 1: no other worker may fill the order", n)
	}
}

// TestARepetitionDoesNotWaitForAWorkerNotYetHeardOf checks the behavior that docs/api.md describes
// for a worker that has just joined the cluster for the first time. If this worker has filled an
// order, and the order is repeated through a broker that does not know the worker yet, the order is
// filled again and has two machines. Once the broker knows the worker, repeating the order keeps
// the older machine.
func TestARepetitionDoesNotWaitForAWorkerNotYetHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(1))
		o := fillLost(t, c)
		time.Sleep(time.Second) // virtual time
		a := place(t.Context(), broker(c, func(cfg *market.Config) { cfg.Directory = unaware{c} }), o)
		if a.err != nil || a.fill.Machine.Worker != "w1" || len(c.Living(o.ID)) != 2 {
			t.Errorf("with w0 unknown: filled on %q, %v; existing machines: %+v", a.fill.Machine.Worker, a.err, c.Living(o.ID))
		}
		c.Find("w0")
		a = place(t.Context(), broker(c, nil), o)
		if a.err != nil || a.fill.Machine.Worker != "w0" || len(c.Living(o.ID)) != 1 {
			t.Errorf("with w0 known: the broker returned %+v, %v; existing machines: %+v", a.fill, a.err, c.Living(o.ID))
		}
	})
}

// unaware is the directory of a broker that does not know worker w0. To other brokers, w0 is
// absent.
type unaware struct{ *Cluster }

func (u unaware) All() ([]bourse.Member, []bourse.Absence) {
	here, _ := u.Cluster.All()
	return here, nil
}
