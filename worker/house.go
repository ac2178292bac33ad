package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	publishEvery = 500 * time.Millisecond
	pruneEvery   = time.Minute
)

// keepHouse publishes the free capacity after changes and drops what the
// store need not keep any longer, until ctx ends.
func (w *Worker) keepHouse(ctx context.Context) error {
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
		case <-w.changed:
			w.publish()
			w.rest(ctx, publishEvery)
		}
	}
}

func (w *Worker) publish() {
	if w.cfg.Publish == nil {
		return
	}
	free, err := w.Free()
	if err != nil {
		w.log.Warn("read free capacity", "err", err)
		return
	}
	w.cfg.Publish(free)
}

// DestroyAll destroys every machine and waits until they are gone or ctx
// ends. It is for a worker that leaves nothing behind.
func (w *Worker) DestroyAll(ctx context.Context) error {
	all, err := w.machines(ctx, "", func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
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
	return nil
}
