package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/tasks"
)

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
