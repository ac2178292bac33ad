package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// recover makes the host and the store agree after a start: what the driver
// runs without a record is removed, what has one is watched again, what the
// driver has lost has ended. Unfinished runs are resumed by the engine
// afterwards. It restarts nothing.
func (w *Worker) recover(ctx context.Context) error {
	begin := time.Now()
	held, err := w.cfg.Driver.Recover(ctx)
	if err != nil {
		return fmt.Errorf("recover driver: %w", err)
	}
	found, err := w.survey(held)
	if err != nil {
		return err
	}
	for _, id := range found.strays {
		w.log.Warn("remove a machine without a record", "machine", id)
		if err := w.cfg.Driver.Destroy(ctx, id); err != nil {
			return fmt.Errorf("remove stray %s: %w", id, err)
		}
	}
	for _, id := range found.forgotten {
		if err := w.cfg.Driver.Forget(ctx, id); err != nil {
			return fmt.Errorf("forget %s: %w", id.Machine, err)
		}
	}
	for _, id := range found.watched {
		w.watch(id) // a lost one ends at once
	}
	for _, id := range found.canceled {
		if err := w.destroyCanceled(ctx, id); err != nil {
			return fmt.Errorf("destroy canceled %s: %w", id, err)
		}
	}
	w.learnLabels()
	w.ready.Store(true)
	close(w.up)
	w.log.Info("worker recovered", "machines", found.machines, "adopted", len(found.watched), "strays", len(found.strays),
		"took", time.Since(begin))
	return nil
}

// findings is what a survey of store and driver says must be done.
type findings struct {
	machines  int
	strays    []bourse.MachineID // held by the driver, unknown to the store
	forgotten []driver.TaskID    // ended, and the end is recorded
	watched   []driver.TaskID    // running, ended unrecorded, or lost
	canceled  []bourse.MachineID // of canceled orders, still living
}

func (w *Worker) survey(held []driver.Status) (findings, error) {
	var f findings
	boots := map[bourse.MachineID]bourse.Boot{}
	err := w.store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			f.machines++
			if m.State == bourse.StateDestroyed {
				continue
			}
			boots[m.ID] = m.Boot
			if alive(&m) && m.State != bourse.StateStarting { // a starting one is its run's
				f.watched = append(f.watched, taskOf(&m))
			}
			if m.State == bourse.StateDestroying {
				continue
			}
			rec, ok, err := tx.Order(m.Order)
			if err != nil {
				return err
			}
			if ok && rec.Canceled {
				f.canceled = append(f.canceled, m.ID)
			}
		}
		return nil
	})
	for _, s := range held {
		boot, known := boots[s.ID.Machine]
		switch {
		case !known:
			f.strays = append(f.strays, s.ID.Machine)
		case s.ID.Boot < boot.Number, s.ID.Boot == boot.Number && boot.Exit != nil:
			f.forgotten = append(f.forgotten, s.ID)
		}
	}
	return f, err
}
