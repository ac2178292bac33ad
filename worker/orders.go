package worker

import (
	"context"
	"runtime"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/tasks"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// quote answers an order from the worker's own records. It holds and writes nothing.
func (w *Worker) quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	if order.Warm() {
		return w.tasks.Quote(ctx, order)
	}
	return w.host.Quote(ctx, w.store, order)
}

// claim fills an order here, or returns the refusal. It returns once the order is
// filled, or when ctx ends; the operation then continues, and the order's id finds or
// cancels it.
//
// Brokers treat CodeUnavailable and CodeRateLimited as a refusal. An order that was not
// recorded is refused (see [admit.Host.Answer]), so an error with one of these codes is
// about a recorded order, and claim returns it as CodeTimeout: the outcome is unknown.
func (w *Worker) claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	fill, refusal, err := w.claimKind(ctx, c)
	if code := bourse.CodeOf(err); code == bourse.CodeUnavailable || code == bourse.CodeRateLimited {
		err = bourse.Errorf(bourse.CodeTimeout, "order %s may be filled here: %w", c.Order.ID, err)
	}
	return fill, refusal, err
}

func (w *Worker) claimKind(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	switch c.Order.Kind() {
	case bourse.KindVolume:
		return w.volumes.Claim(ctx, c)
	case bourse.KindTask:
		return w.tasks.Claim(ctx, c)
	case bourse.KindHold:
		return w.holds.Claim(ctx, c)
	case bourse.KindMachine:
	}
	return w.machines.Claim(ctx, c)
}

// cancel ensures that this worker does not fill the order, now or later: a tombstone
// refuses every later claim, a machine or volume that filled it is destroyed, and a
// hold ends. It returns once that is recorded. It returns failed_precondition, and
// cancels nothing, if a machine has the volume.
func (w *Worker) cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error) {
	return w.cancelFor(ctx, id, "a request")
}

// cancelFor is cancel with a source for the log.
func (w *Worker) cancelFor(ctx context.Context, id bourse.OrderID, source string) (bourse.Cancellation, error) {
	if err := id.Validate(); err != nil {
		return bourse.Cancellation{}, err
	}
	var filled bourse.Cancellation
	err := w.store.Update(ctx, func(tx *store.Tx) error {
		rec, ok, err := tx.Order(id)
		if err != nil {
			return err
		}
		if !ok {
			rec = store.OrderRecord{ID: id, At: time.Now().UTC()}
		}
		filled = bourse.Cancellation{Machine: rec.Machine, Volume: rec.Volume}
		if rec.Task != nil {
			return tasks.Cancel(tx, &rec)
		}
		if rec.Canceled {
			return nil
		}
		if err := volumes.MayCancel(tx, rec.Volume); err != nil {
			return err
		}
		if err := admit.End(tx, id); err != nil {
			return err
		}
		rec.Canceled = true
		rec.Decision.Outcome = bourse.OutcomeCanceled
		return tx.PutOrder(rec)
	})
	w.tasks.Withdraw(id) // calls that begin after the transaction are refused
	// A crash before the next step leaves a canceled order with a living machine or
	// volume, which recovery finds.
	switch {
	case err != nil: // the transaction may still be writing to filled
		return bourse.Cancellation{}, err
	case filled.Machine != "":
		w.log.Info("order canceled: its machine is destroyed", "order", id, "machine", filled.Machine, "source", source)
		return filled, w.machines.Discard(ctx, filled.Machine)
	case filled.Volume != "":
		w.log.Info("order canceled: its volume is destroyed", "order", id, "volume", filled.Volume, "source", source)
		return filled, w.volumes.DestroyCanceled(ctx, filled.Volume)
	}
	return filled, nil
}

// releaseHolds ends a reservation's holds here and refuses later ones: a release that
// overtakes its reservation wins (invariant 7).
func (w *Worker) releaseHolds(ctx context.Context, key bourse.ReservationKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	_, err := w.cancel(ctx, key.All())
	return err
}

// decision returns the record of an order that was filled here.
func (w *Worker) decision(ctx context.Context, id bourse.OrderID) (bourse.Decision, error) {
	if err := w.store.Sync(ctx); err != nil {
		return bourse.Decision{}, err
	}
	var d bourse.Decision
	err := w.store.View(func(tx *store.Tx) error {
		rec, ok, err := tx.Order(id)
		if err == nil && rec.Task != nil {
			d = tasks.Decision(&rec)
			return nil
		}
		if err == nil && (!ok || rec.Machine == "" && rec.Volume == "" && !rec.Held) {
			err = bourse.Errorf(bourse.CodeNotFound, "order not found")
		}
		d = rec.Decision
		return err
	})
	return d, err
}

// How long a claim may keep others from beginning. A claim that takes longer waits for
// an image or a program, not for this worker.
const (
	machineLease = 250 * time.Millisecond
	taskLease    = 25 * time.Millisecond
)

// claimTurns limits the concurrent claims of all brokers together. The limit is twice
// that of one broker, so that a single broker is never refused. A claim that gets no
// turn soon should go to another worker.
func claimTurns() throttle.TurnsConfig {
	n := 64 * runtime.GOMAXPROCS(0)
	return throttle.TurnsConfig{AtOnce: n, Queue: n, Patience: 100 * time.Millisecond}
}

// admit is claim within the worker's limits. Beyond them it does nothing and returns
// rate_limited, which is not a refusal.
func (w *Worker) admit(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	lease := machineLease
	if c.Order.Warm() {
		lease = taskLease
	}
	turn, err := w.turns.Take(ctx, lease)
	if err != nil {
		return nil, nil, err
	}
	defer turn.Done()
	return w.claim(ctx, c)
}

// claimStream is a claim of a task whose answer is streamed.
func (w *Worker) claimStream(ctx context.Context, c bourse.Claim, out *codec.Writer) error {
	if err := c.Order.Validate(); err != nil {
		return err
	}
	if c.Order.Kind() != bourse.KindTask {
		return bourse.Errorf(bourse.CodeInvalid, "the order is not for a task: only a task's answer can be streamed")
	}
	c.Order.Task.Output = func(part []byte) { _ = out.Write(fabric.ClaimPart{Output: part}) } // ctx ends if the caller has left
	end := fabric.ClaimPart{}
	if reply, err := claimed(w.admit(ctx, &c)); err != nil {
		end.Failure = fabric.FailureOf(err)
	} else {
		end.Reply = &reply
	}
	_ = out.Write(end)
	return nil
}
