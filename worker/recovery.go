package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// recover makes the host and the store agree after a start: machines, then what
// they were doing, then volumes. Unfinished runs are resumed by the engine
// afterwards. It restarts nothing.
func (w *Worker) recover(ctx context.Context) error {
	begin := time.Now()
	found, err := w.machines.Recover(ctx)
	if err != nil {
		return err
	}
	if err := w.tasks.Recover(ctx); err != nil {
		return fmt.Errorf("recover tasks: %w", err)
	}
	if err := w.volumes.Recover(ctx); err != nil {
		if unknown, ok := errors.AsType[*volumes.Unknown](err); ok {
			return machines.Unknown(unknown.Volumes)
		}
		return fmt.Errorf("recover volumes: %w", err)
	}
	w.learnLabels()
	w.ready.Store(true)
	close(w.up)
	w.log.Info("worker recovered", "machines", found.Machines, "adopted", found.Adopted, "strays", found.Strays, "took", time.Since(begin))
	return nil
}
