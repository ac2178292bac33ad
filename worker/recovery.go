package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// recover makes the host and the store agree after a start: what the drivers
// run without a record is removed, what has one is watched again, what they
// have lost has ended. Networks come first: no machine is to be without its
// rules for longer than the daemon was away. Unfinished runs are resumed by
// the engine afterwards. It restarts nothing.
func (w *Worker) recover(ctx context.Context) error {
	begin := time.Now()
	if err := w.checkFound(ctx); err != nil {
		return err
	}
	if err := w.recoverNetworks(ctx); err != nil {
		return fmt.Errorf("recover networks: %w", err)
	}
	found, err := w.adopt(ctx, w.cfg.Driver, isHost)
	if err != nil {
		return err
	}
	if w.cfg.Pull != nil {
		if _, err := w.adopt(ctx, w.cfg.Pull, isPull); err != nil {
			return err
		}
	}
	if err := w.recoverContainers(ctx); isUnknown(err) {
		return err
	} else if err != nil {
		w.log.Error("machines with an image wait for their driver", "err", err)
	}
	if err := w.recoverTasks(ctx); err != nil {
		return fmt.Errorf("recover tasks: %w", err)
	}
	if err := w.recoverVolumes(ctx); err != nil {
		return fmt.Errorf("recover volumes: %w", err)
	}
	w.learnLabels()
	w.ready.Store(true)
	close(w.up)
	w.log.Info("worker recovered", "machines", found.machines, "adopted", len(found.watched), "strays", len(found.strays),
		"took", time.Since(begin))
	return nil
}

func isHost(image string) bool  { return image == bourse.ImageHost }
func isPull(image string) bool  { return image == bourse.ImagePull }
func isImage(image string) bool { return bourse.InRegistry(image) }

// recoverContainers is the part of recover that is about images.
func (w *Worker) recoverContainers(ctx context.Context) error {
	if w.cfg.Container == nil {
		return nil
	}
	found, err := w.adopt(ctx, w.cfg.Container, isImage)
	if err != nil {
		return err
	}
	close(w.contained)
	w.log.Info("driver of images recovered", "machines", found.machines, "adopted", len(found.watched), "strays", len(found.strays))
	return nil
}

const (
	lateFirst = time.Second // between two attempts; doubles
	lateMost  = 15 * time.Second
)

// recoverLate goes on to recover a driver of images that was not there when
// the worker started: what is not containerd's business works meanwhile.
func (w *Worker) recoverLate(ctx context.Context) error {
	if _, err := w.driverOf(""); !errors.Is(err, errLate) {
		return nil
	}
	for wait := lateFirst; ; wait = min(2*wait, lateMost) {
		w.rest(ctx, wait)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end is no error
		}
		err := w.recoverContainers(ctx)
		if err == nil {
			w.learnLabels()
			return nil
		}
		if isUnknown(err) {
			return err
		}
		w.log.Debug("machines with an image still wait for their driver", "err", err)
	}
}

// adopt makes one driver and the store agree about the machines whose image it
// runs.
func (w *Worker) adopt(ctx context.Context, d driver.Driver, mine func(image string) bool) (findings, error) {
	held, err := d.Recover(ctx)
	if err != nil {
		return findings{}, fmt.Errorf("recover driver: %w", err)
	}
	if err := w.allKnown(tasksOf(held)); err != nil {
		return findings{}, err
	}
	found, err := w.survey(held, mine)
	if err != nil {
		return found, err
	}
	for _, id := range found.strays {
		w.log.Warn("remove a machine without a record", "machine", id)
		if err := d.Destroy(ctx, id); err != nil {
			return found, fmt.Errorf("remove stray %s: %w", id, err)
		}
	}
	for _, id := range found.forgotten {
		if err := d.Forget(ctx, id); err != nil {
			return found, fmt.Errorf("forget %s: %w", id.Machine, err)
		}
	}
	for _, id := range found.watched {
		w.watch(d, id, lost) // a lost one ends at once
	}
	if w.cfg.Network != nil {
		w.watches.Go(func() { w.findCutOff(w.life, found.watched) })
	}
	for _, c := range found.canceled {
		w.log.Info("order canceled: its machine is destroyed", "order", c.order, "machine", c.machine, "source", "found by recovery")
		if err := w.destroyCanceled(ctx, c.machine); err != nil {
			return found, fmt.Errorf("destroy canceled %s: %w", c.machine, err)
		}
	}
	return found, nil
}

// findings is what a survey of store and driver says must be done.
type findings struct {
	machines  int
	strays    []bourse.MachineID // held by the driver, unknown to the store
	forgotten []driver.TaskID    // ended, and the end is recorded
	watched   []driver.TaskID    // running, ended unrecorded, or lost
	canceled  []canceledFill     // still living
}

// canceledFill is a machine whose order was canceled.
type canceledFill struct {
	order   bourse.OrderID
	machine bourse.MachineID
}

func (w *Worker) survey(held []driver.Status, mine func(image string) bool) (findings, error) {
	var f findings
	boots := map[bourse.MachineID]bourse.Boot{}
	err := w.store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if !mine(m.Config.Image) {
				continue
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
			if ok && (rec.Canceled || rec.Task != nil && !rec.Task.Open()) {
				f.canceled = append(f.canceled, canceledFill{m.Order, m.ID})
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
