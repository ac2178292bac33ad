package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// cancel makes sure that this worker does not fill the order, now or later:
// a tombstone refuses every later claim, and a machine that filled it is
// destroyed. It answers when that is recorded, not when the machine is gone.
func (w *Worker) cancel(ctx context.Context, id bourse.OrderID) (bourse.Cancellation, error) {
	if err := id.Validate(); err != nil {
		return bourse.Cancellation{}, err
	}
	var machine bourse.MachineID
	err := w.store.Update(ctx, func(tx *store.Tx) error {
		rec, ok, err := tx.Order(id)
		if err != nil {
			return err
		}
		if !ok {
			rec = store.OrderRecord{ID: id, At: time.Now().UTC()}
		}
		machine = rec.Machine
		if rec.Canceled {
			return nil
		}
		rec.Canceled = true
		rec.Decision.Outcome = bourse.OutcomeCanceled
		return tx.PutOrder(rec)
	})
	if err != nil || machine == "" {
		return bourse.Cancellation{}, err
	}
	// A crash between the two leaves a canceled order with a living machine:
	// recovery looks for those.
	return bourse.Cancellation{Machine: machine}, w.destroyCanceled(ctx, machine)
}

func (w *Worker) destroyCanceled(ctx context.Context, id bourse.MachineID) error {
	_, err := w.beginDestroy(ctx, id, bourse.SourceWorker, func(*bourse.Machine) error { return nil })
	if c := bourse.CodeOf(err); c == bourse.CodeNotFound {
		return nil
	}
	return err
}

var _ fsm.Tx = (*store.Tx)(nil)
