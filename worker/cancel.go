package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
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
		if rec.Task != nil && rec.Task.Cold != nil {
			_, err := tx.TaskEnded(id, coldCut(rec.Task, bourse.TaskCanceled, "it was canceled: "+errWithdrawn.Error()), time.Now().UTC())
			return err
		}
		if rec.Canceled || rec.Task != nil { // its call records its end; one that has ended stays as it was told
			return nil
		}
		if err := mayCancelVolume(tx, rec.Volume); err != nil {
			return err
		}
		if err := endHolds(tx, id); err != nil {
			return err
		}
		rec.Canceled = true
		rec.Decision.Outcome = bourse.OutcomeCanceled
		return tx.PutOrder(rec)
	})
	w.calls.withdraw(id) // what begins after the transaction is refused
	// A crash before the next step leaves a canceled order with a living
	// machine or volume: recovery looks for those.
	switch {
	case err != nil: // the transaction may still be at work on filled
		return bourse.Cancellation{}, err
	case filled.Machine != "":
		w.log.Info("order canceled: its machine is destroyed", "order", id, "machine", filled.Machine, "source", source)
		return filled, w.destroyCanceled(ctx, filled.Machine)
	case filled.Volume != "":
		w.log.Info("order canceled: its volume is destroyed", "order", id, "volume", filled.Volume, "source", source)
		return filled, w.destroyCanceledVolume(ctx, filled.Volume)
	}
	return filled, nil
}

func (w *Worker) destroyCanceled(ctx context.Context, id bourse.MachineID) error {
	_, err := w.beginDestroy(ctx, id, bourse.SourceWorker, func(*bourse.Machine) error { return nil })
	if c := bourse.CodeOf(err); c == bourse.CodeNotFound {
		return nil
	}
	return err
}

var _ fsm.Tx = (*store.Tx)(nil)
