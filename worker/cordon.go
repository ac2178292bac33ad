package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// cordon has the worker refuse new orders, or take them again. A claim is judged in the
// transaction that records it: those before this one stand, those behind it are
// refused, whatever was quoted before.
func (w *Worker) cordon(ctx context.Context, req fabric.CordonRequest) (bourse.Facts, error) {
	err := w.store.Update(ctx, func(tx *store.Tx) error {
		was, err := store.CordonOf(tx)
		switch {
		case err != nil || (was != nil) == req.Cordon:
			return err
		case req.Cordon:
			return store.SetCordon(tx, &bourse.Cordon{At: time.Now().UTC(), By: req.By})
		}
		return store.SetCordon(tx, nil)
	})
	if err != nil {
		return bourse.Facts{}, err
	}
	w.log.Info("cordon", "cordoned", req.Cordon, "by", req.By)
	return w.Facts()
}
