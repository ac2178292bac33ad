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

// quote answers an order with a quote, based on the worker's own records. It does not
// reserve or write anything.
func (w *Worker) quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	if order.Warm() {
		return w.tasks.Quote(ctx, order)
	}
	return w.host.Quote(ctx, w.store, order)
}

// claim fills an order on this worker, or returns a refusal. If ctx is done before the order is filled, claim returns,
// but the operation continues, and the order's id can be used to find or cancel it.
//
// Brokers treat the errors CodeUnavailable and CodeRateLimited as refusals, so claim never returns them. If the order
// was not recorded, claim returns a refusal instead (see [admit.Host.Answer]). If the order was recorded, claim returns
// CodeTimeout instead, because the outcome is unknown.
func (w *Worker) claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	fill, refusal, err := w.claimKind(ctx, c)
	if code := bourse.CodeOf(err); code == bourse.CodeUnavailable || code == bourse.CodeRateLimited {
		err = bourse.Errorf(bourse.CodeTimeout, "order %s may have been filled on this worker: %w", c.Order.ID, err)
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

// cancel cancels an order on this worker, whether or not the worker has filled it. It records a tombstone, so that all
// later claims are refused. It also starts destroying the order's machine or volume, if any, and deletes the order's
// hold. cancel returns once all of this is recorded. If the order's volume belongs to a machine, cancel returns
// failed_precondition and does not cancel the order.
func (w *Worker) cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error) {
	return w.cancelFor(ctx, id, "a request")
}

// cancelFor is like cancel. source names the origin of the cancellation for the log.
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
	w.tasks.Withdraw(id) // tasks that begin after the transaction are refused
	// A crash before the next step leaves a canceled order with an existing machine or volume, which recovery finds and
	// destroys.
	switch {
	case err != nil: // after an error, the transaction may still be writing to filled, so do not read it
		return bourse.Cancellation{}, err
	case filled.Machine != "":
		w.log.Info("order canceled, destroying its machine", "order", id, "machine", filled.Machine, "source", source)
		return filled, w.machines.Discard(ctx, filled.Machine)
	case filled.Volume != "":
		w.log.Info("order canceled, destroying its volume", "order", id, "volume", filled.Volume, "source", source)
		return filled, w.volumes.DestroyCanceled(ctx, filled.Volume)
	}
	return filled, nil
}

// releaseHolds deletes a reservation's holds on this worker, and ensures that later orders for the reservation's holds
// are refused. A release therefore wins even if it arrives before the orders that would create the holds (invariant 7).
func (w *Worker) releaseHolds(ctx context.Context, key bourse.ReservationKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	_, err := w.cancel(ctx, key.All())
	return err
}

// decision returns the recorded decision about an order that this worker has filled.
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

// The maximum time for which a claim occupies its turn. After that time, another claim may begin, because a claim that
// takes longer is usually waiting for an image or a program rather than for this worker.
const (
	machineLease = 250 * time.Millisecond
	taskLease    = 25 * time.Millisecond
)

// claimTurns limits the concurrent claims of all brokers together. The limit is twice the number of claims that one
// broker sends at the same time, so a single broker never reaches it. Claims wait in the queue only briefly. If a claim
// does not get a turn in time, it fails, and its broker tries another worker.
func claimTurns() throttle.OrderLimits {
	n := 64 * runtime.GOMAXPROCS(0)
	return throttle.OrderLimits{Concurrency: n, Queue: n, QueueTimeout: 100 * time.Millisecond}
}

// admit calls claim when the claim gets its turn. If too many claims are in progress, it returns the error rate_limited
// instead.
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

// claimStream fills an order for a task, and streams the task's answer to out.
func (w *Worker) claimStream(ctx context.Context, c bourse.Claim, out *codec.Writer) error {
	if err := c.Order.Validate(); err != nil {
		return err
	}
	if c.Order.Kind() != bourse.KindTask {
		return bourse.Errorf(bourse.CodeInvalid, "only a task's answer can be streamed, and the order is not for a task")
	}
	c.Order.Task.Output = func(part []byte) { _ = out.Write(fabric.ClaimPart{Output: part}) } // ctx is canceled if the caller disconnects
	end := fabric.ClaimPart{}
	if reply, err := claimed(w.admit(ctx, &c)); err != nil {
		end.Failure = fabric.FailureOf(err)
	} else {
		end.Reply = &reply
	}
	_ = out.Write(end)
	return nil
}
