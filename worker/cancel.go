package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/tasks"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// cancel makes sure that this worker does not fill the order, now or later:
// a tombstone refuses every later claim, and a machine or volume that filled
// it is destroyed, a hold ended. It answers when that is recorded, not when it is gone.
// failed_precondition: a machine has the volume, and nothing is canceled.
func (w *Worker) cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error) {
	return w.cancelFor(ctx, id, "a request")
}

// cancelFor is cancel, and names in the log who asked for it.
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
	w.tasks.Withdraw(id) // what begins after the transaction is refused
	// A crash before the next step leaves a canceled order with a living
	// machine or volume: recovery looks for those.
	switch {
	case err != nil: // the transaction may still be at work on filled
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

// releaseHolds ends all that a reservation holds here, and refuses whatever it
// asks for later: a release that overtakes its reserve wins (invariant 7).
func (w *Worker) releaseHolds(ctx context.Context, key bourse.ReservationKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	_, err := w.cancel(ctx, key.All())
	return err
}
