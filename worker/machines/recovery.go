package machines

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Recover reconciles the host with the store after the daemon has started. It watches the drivers' tasks that have a
// record. If a task has no record, Recover returns an error or, if the operator has allowed it, removes the task. If a
// recorded task no longer exists, it records the task as lost. It restores networks first, because running machines'
// network rules are missing until then. Recover does not restart any machines. The engine resumes unfinished runs
// afterwards.
func (ms *Machines) Recover(ctx context.Context) (Recovered, error) {
	if err := ms.checkFound(ctx); err != nil {
		return Recovered{}, err
	}
	if err := ms.recoverNetworks(ctx); err != nil {
		return Recovered{}, fmt.Errorf("recover networks: %w", err)
	}
	found, err := ms.adopt(ctx, bourse.HostImage)
	if err != nil {
		return Recovered{}, err
	}
	if _, ok := ms.drivers.all[bourse.PollerImage]; ok {
		if _, err := ms.adopt(ctx, bourse.PollerImage); err != nil {
			return Recovered{}, err
		}
	}
	if err := ms.recoverContainers(ctx); isUnknown(err) {
		return Recovered{}, err
	} else if err != nil {
		ms.state.Log.Error("recover container driver failed, will retry", "err", err)
	}
	return Recovered{found.machines, len(found.watched), len(found.unknown)}, nil
}

// Recovered contains the results of recovering the machines that run host programs: the number of machines with a
// record, how many of them have a task that was adopted, and the number of machines that were removed because they had
// no record.
type Recovered struct {
	Machines, Adopted, Unknown int
}

// recoverContainers reconciles the container driver with the store.
func (ms *Machines) recoverContainers(ctx context.Context) error {
	if _, ok := ms.drivers.all[bourse.RegistryImage]; !ok {
		return nil
	}
	found, err := ms.adopt(ctx, bourse.RegistryImage)
	if err != nil {
		return err
	}
	close(ms.drivers.containersReady)
	ms.state.Log.Info("container driver recovered", "machines", found.machines, "adopted", len(found.watched), "strays", len(found.unknown))
	return nil
}

const (
	minRecoverDelay = time.Second // delay before the first attempt; it doubles
	maxRecoverDelay = 15 * time.Second
)

// RetryRecover recovers the container driver if the driver was unavailable when the worker started. It retries until it
// succeeds, and then calls done. In the meantime, operations that do not need the driver work as usual.
func (ms *Machines) RetryRecover(ctx context.Context, done func()) error {
	if !errors.Is(ms.Containers(), errDriverNotReady) {
		return nil
	}
	for wait := minRecoverDelay; ; wait = min(2*wait, maxRecoverDelay) {
		state.Sleep(ctx, wait)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the daemon is stopping, which is not an error
		}
		err := ms.recoverContainers(ctx)
		if err == nil {
			done()
			return nil
		}
		if isUnknown(err) {
			return err
		}
		ms.state.Log.Debug("recover container driver failed again", "err", err)
	}
}

// adopt reconciles the driver for one kind of image with the store.
func (ms *Machines) adopt(ctx context.Context, kind bourse.ImageKind) (recoveryState, error) {
	d := ms.drivers.all[kind]
	held, err := d.Recover(ctx)
	if err != nil {
		return recoveryState{}, fmt.Errorf("recover driver: %w", err)
	}
	if err := ms.allKnown(tasksOf(held)); err != nil {
		return recoveryState{}, err
	}
	found, err := ms.survey(held, kind)
	if err != nil {
		return found, err
	}
	for _, id := range found.unknown {
		ms.state.Log.Warn("removing machine without a record", "machine", id)
		if err := d.Destroy(ctx, id); err != nil {
			return found, fmt.Errorf("remove stray %s: %w", id, err)
		}
	}
	for _, id := range found.forgotten {
		if err := d.DiscardExit(ctx, id); err != nil {
			return found, fmt.Errorf("discard exit of %s: %w", id.Machine, err)
		}
	}
	for _, id := range found.watched {
		ms.watch(d, id, errTextLost) // a lost task's exit is recorded immediately
	}
	if ms.network != nil {
		ms.state.Go(func(life context.Context) { ms.reportLostNetworks(life, found.watched) })
	}
	for _, c := range found.canceled {
		ms.state.Log.Info("order canceled, destroying its machine", "order", c.order, "machine", c.machine, "source", "found by recovery")
		if err := ms.Discard(ctx, c.machine); err != nil {
			return found, fmt.Errorf("destroy machine %s of a canceled order: %w", c.machine, err)
		}
	}
	return found, nil
}

// recoveryState lists the differences between the store and a driver.
type recoveryState struct {
	machines  int
	unknown   []bourse.MachineID // machines that have tasks but no record
	forgotten []driver.TaskID    // tasks that have exited and whose exit is already recorded
	watched   []driver.TaskID    // tasks that are running or lost, or whose exit is not yet recorded
	canceled  []canceledFill     // machines whose order was canceled but which are not destroyed yet
}

// canceledFill identifies a machine that must be destroyed because its order was canceled.
type canceledFill struct {
	order   bourse.OrderID
	machine bourse.MachineID
}

func (ms *Machines) survey(held []driver.Status, kind bourse.ImageKind) (recoveryState, error) {
	var f recoveryState
	boots := map[bourse.MachineID]bourse.Boot{}
	err := ms.state.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if m.Config.ImageKind() != kind {
				continue
			}
			f.machines++
			if m.State == bourse.StateDestroyed {
				continue
			}
			boots[m.ID] = m.Boot
			if mayHaveTask(&m) && m.State != bourse.StateStarting { // the run that starts a machine also takes care of its task
				f.watched = append(f.watched, TaskOf(&m))
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
			f.unknown = append(f.unknown, s.ID.Machine)
		case s.ID.Boot < boot.Number, s.ID.Boot == boot.Number && boot.Exit != nil:
			f.forgotten = append(f.forgotten, s.ID)
		}
	}
	return f, err
}

// errUnknownMachines is returned if the host has machines or volumes without a record
// in the store.
type errUnknownMachines struct{ what []string }

func (e *errUnknownMachines) Error() string {
	const shown = 20
	names := e.what[:min(len(e.what), shown)]
	more := ""
	if n := len(e.what) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("the host has objects without a record in the store: %s%s", strings.Join(names, ", "), more)
}

// UnknownObjectsError returns the error that makes the daemon exit if there are objects on the host
// without a record in the store.
func UnknownObjectsError(what []string) error {
	e := &errUnknownMachines{what}
	return bourse.Errorf(bourse.CodeFailedPrecondition,
		"%w; is the data directory mounted, and not an old copy? --forget-machines removes them", e)
}

func isUnknown(err error) bool {
	_, ok := errors.AsType[*errUnknownMachines](err)
	return ok
}

// checkFound checks that the store has a record of each task on the host. It is called before anything on the host is
// changed. The records of a machine and of each boot are durable before the boot's task starts, so an intact store has
// a record of every task. A task without a record usually means that the data directory is not mounted or was replaced
// by an older copy. Removing such tasks could kill all machines on the host.
func (ms *Machines) checkFound(ctx context.Context) error {
	var all []driver.TaskID
	for _, kind := range []bourse.ImageKind{bourse.HostImage, bourse.RegistryImage} {
		f, ok := ms.drivers.all[kind].(driver.Finder)
		if !ok {
			continue
		}
		found, err := f.Found(ctx)
		if err != nil { // for example, containerd may not be running yet; adopt checks its tasks later
			ms.state.Log.Warn("list tasks failed", "err", err)
			continue
		}
		all = append(all, found...)
	}
	return ms.allKnown(all)
}

// allKnown returns an error unless the store has a record of every task in held, or the operator has allowed the worker
// to remove tasks without a record.
func (ms *Machines) allKnown(held []driver.TaskID) error {
	var unknown []string
	err := ms.state.Store.View(func(tx *store.Tx) error {
		for _, id := range held {
			m, err := tx.Machine(id.Machine)
			switch {
			case bourse.CodeOf(err) == bourse.CodeNotFound:
				unknown = append(unknown, string(id.Machine))
			case err != nil:
				return err
			case id.Boot > m.Boot.Number:
				unknown = append(unknown, fmt.Sprintf("%s (its boot %d, the record has %d)", id.Machine, id.Boot, m.Boot.Number))
			}
		}
		return nil
	})
	if err != nil || len(unknown) == 0 {
		return err
	}
	slices.Sort(unknown)
	unknown = slices.Compact(unknown)
	if ms.forget {
		ms.state.Log.Warn("removing machines without a record in the store", "machines", unknown)
		return nil
	}
	return UnknownObjectsError(unknown)
}

func tasksOf(held []driver.Status) []driver.TaskID {
	out := make([]driver.TaskID, len(held))
	for i, s := range held {
		out[i] = s.ID
	}
	return out
}
