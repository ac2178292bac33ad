package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	pruneEvery = time.Minute
	// leaveTimeout bounds how long a worker that leaves nothing behind waits
	// until that is published.
	leaveTimeout = time.Second
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
				w.log.Warn("prune the store failed", "err", err)
			}
		}
	}
}

// DestroyAll destroys every machine and volume and waits until they are gone or
// ctx ends. It is for a worker that leaves nothing behind, not in the view either.
func (w *Worker) DestroyAll(ctx context.Context) error {
	all, err := w.machines.List(ctx, nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
	if err != nil {
		return err
	}
	for _, m := range all {
		if err := w.machines.Discard(ctx, m.ID); err != nil {
			return err
		}
	}
	for _, m := range all {
		if _, err := w.state.AwaitMachine(ctx, m.ID, func(m *bourse.Machine) bool { return m.State == bourse.StateDestroyed }); err != nil {
			return err
		}
	}
	if err := w.volumes.DestroyAll(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, leaveTimeout)
	defer cancel()
	if w.publisher == nil {
		return nil
	}
	if err := w.publisher.Await(ctx); err != nil {
		w.log.Warn("publish that all machines are gone failed", "err", err)
	}
	return nil
}

// Leave publishes that the worker takes no more orders, and returns when the
// view has that, or with the error of ctx. It is called during Run.
func (w *Worker) Leave(ctx context.Context) error {
	if w.publisher == nil {
		return nil
	}
	return w.publisher.Leave(ctx)
}
