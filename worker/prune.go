package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	pruneEvery = time.Minute
	// farewell bounds how long a worker that leaves nothing behind waits for
	// the view to hear of it.
	farewell = time.Second
)

// pruneStore drops what the store need not keep any longer, until ctx ends.
func (w *Worker) pruneStore(ctx context.Context) error {
	prune := time.NewTicker(pruneEvery)
	defer prune.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-prune.C:
			if _, err := w.store.Prune(ctx, time.Now()); err != nil {
				w.log.Warn("prune the store", "err", err)
			}
		}
	}
}

// DestroyAll destroys every machine and volume and waits until they are gone or
// ctx ends. It is for a worker that leaves nothing behind, not in the view either.
func (w *Worker) DestroyAll(ctx context.Context) error {
	all, err := w.machines(ctx, nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := w.destroyCanceled(ctx, m.ID); err != nil {
			return err
		}
	}
	for _, m := range all {
		if _, err := w.await(ctx, m.ID, func(m *bourse.Machine) bool { return m.State == bourse.StateDestroyed }); err != nil {
			return err
		}
	}
	if err := w.destroyAllVolumes(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, farewell)
	defer cancel()
	if err := w.published(ctx); err != nil {
		w.log.Warn("tell the view that all machines are gone", "err", err)
	}
	return nil
}
