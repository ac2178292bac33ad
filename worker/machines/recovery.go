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

// Recover makes the host and the store agree after a start: what the drivers
// run without a record is removed, what has one is watched again, what they
// have lost has ended. Networks come first: no machine is to be without its
// rules for longer than the daemon was away. Unfinished runs are resumed by
// the engine afterwards. It restarts nothing.
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
		ms.state.Log.Error("machines with an image wait for their driver", "err", err)
	}
	return Recovered{found.machines, len(found.watched), len(found.strays)}, nil
}

// Recovered counts what was found of machines that are programs of the host.
type Recovered struct {
	Machines, Adopted, Strays int
}

// recoverContainers is the part of Recover that is about images.
func (ms *Machines) recoverContainers(ctx context.Context) error {
	if _, ok := ms.drivers.all[bourse.RegistryImage]; !ok {
		return nil
	}
	found, err := ms.adopt(ctx, bourse.RegistryImage)
	if err != nil {
		return err
	}
	close(ms.drivers.late)
	ms.state.Log.Info("driver of images recovered", "machines", found.machines, "adopted", len(found.watched), "strays", len(found.strays))
	return nil
}

const (
	lateFirst = time.Second // between two attempts; doubles
	lateMost  = 15 * time.Second
)

// RecoverLate goes on to recover a driver of images that was not there when
// the worker started: what is not containerd's business works meanwhile. done is
// called when it has.
func (ms *Machines) RecoverLate(ctx context.Context, done func()) error {
	if !errors.Is(ms.Containers(), errLate) {
		return nil
	}
	for wait := lateFirst; ; wait = min(2*wait, lateMost) {
		state.Rest(ctx, wait)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the end is no error
		}
		err := ms.recoverContainers(ctx)
		if err == nil {
			done()
			return nil
		}
		if isUnknown(err) {
			return err
		}
		ms.state.Log.Debug("machines with an image still wait for their driver", "err", err)
	}
}

// adopt makes one driver and the store agree about the machines whose kind of
// image it runs.
func (ms *Machines) adopt(ctx context.Context, kind bourse.ImageKind) (findings, error) {
	d := ms.drivers.all[kind]
	held, err := d.Recover(ctx)
	if err != nil {
		return findings{}, fmt.Errorf("recover driver: %w", err)
	}
	if err := ms.allKnown(tasksOf(held)); err != nil {
		return findings{}, err
	}
	found, err := ms.survey(held, kind)
	if err != nil {
		return found, err
	}
	for _, id := range found.strays {
		ms.state.Log.Warn("remove a machine without a record", "machine", id)
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
		ms.watch(d, id, lost) // a lost one ends at once
	}
	if ms.network != nil {
		ms.state.Go(func(life context.Context) { ms.findCutOff(life, found.watched) })
	}
	for _, c := range found.canceled {
		ms.state.Log.Info("order canceled: its machine is destroyed", "order", c.order, "machine", c.machine, "source", "found by recovery")
		if err := ms.Discard(ctx, c.machine); err != nil {
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

func (ms *Machines) survey(held []driver.Status, kind bourse.ImageKind) (findings, error) {
	var f findings
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
			if alive(&m) && m.State != bourse.StateStarting { // a starting one is its run's
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
			f.strays = append(f.strays, s.ID.Machine)
		case s.ID.Boot < boot.Number, s.ID.Boot == boot.Number && boot.Exit != nil:
			f.forgotten = append(f.forgotten, s.ID)
		}
	}
	return f, err
}

// errUnknownMachines says that the host has what no record of the store is
// about.
type errUnknownMachines struct{ what []string }

func (e *errUnknownMachines) Error() string {
	const shown = 20
	names := e.what[:min(len(e.what), shown)]
	more := ""
	if n := len(e.what) - len(names); n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}
	return fmt.Sprintf("the host has what the store does not know: %s%s", strings.Join(names, ", "), more)
}

// Unknown is the error that ends the daemon of a host that has what no record of
// the store is about.
func Unknown(what []string) error {
	e := &errUnknownMachines{what}
	return bourse.Errorf(bourse.CodeFailedPrecondition,
		"%w; is the data directory mounted, or an old copy? With --forget-machines they are removed", e)
}

func isUnknown(err error) bool {
	_, ok := errors.AsType[*errUnknownMachines](err)
	return ok
}

// checkFound looks, before anything on the host is changed, for tasks that the
// store does not know. A record of a machine, and of each of its boots, is
// durable before the task starts, so a store that was not lost, damaged or
// replaced by an older copy knows them all. Removing such tasks, which is what
// their missing record would mean otherwise, would end every machine of a host
// whose directory is not mounted.
func (ms *Machines) checkFound(ctx context.Context) error {
	var all []driver.TaskID
	for _, kind := range []bourse.ImageKind{bourse.HostImage, bourse.RegistryImage} {
		f, ok := ms.drivers.all[kind].(driver.Finder)
		if !ok {
			continue
		}
		found, err := f.Found(ctx)
		if err != nil { // of containerd, say, which may come later: adopt looks again
			ms.state.Log.Warn("what the host has is not known yet", "err", err)
			continue
		}
		all = append(all, found...)
	}
	return ms.allKnown(all)
}

// allKnown reports an error unless the store knows all of the tasks, or the
// operator has said to forget those that it does not.
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
		ms.state.Log.Warn("machines that the store does not know are removed, as was asked", "machines", unknown)
		return nil
	}
	return Unknown(unknown)
}

func tasksOf(held []driver.Status) []driver.TaskID {
	out := make([]driver.TaskID, len(held))
	for i, s := range held {
		out[i] = s.ID
	}
	return out
}
