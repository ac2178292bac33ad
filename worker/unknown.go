package worker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

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

// refusal is the error that ends the daemon.
func (e *errUnknownMachines) refusal() error {
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
func (w *Worker) checkFound(ctx context.Context) error {
	var all []driver.TaskID
	for _, d := range []any{w.cfg.Driver, w.cfg.Container} {
		f, ok := d.(driver.Finder)
		if !ok {
			continue
		}
		found, err := f.Found(ctx)
		if err != nil { // of containerd, say, which may come later: adopt looks again
			w.log.Warn("what the host has is not known yet", "err", err)
			continue
		}
		all = append(all, found...)
	}
	return w.allKnown(all)
}

// allKnown reports an error unless the store knows all of the tasks, or the
// operator has said to forget those that it does not.
func (w *Worker) allKnown(held []driver.TaskID) error {
	var unknown []string
	err := w.store.View(func(tx *store.Tx) error {
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
	e := &errUnknownMachines{slices.Compact(unknown)}
	if w.cfg.Forget {
		w.log.Warn("machines that the store does not know are removed, as was asked", "machines", e.what)
		return nil
	}
	return e.refusal()
}

func tasksOf(held []driver.Status) []driver.TaskID {
	out := make([]driver.TaskID, len(held))
	for i, s := range held {
		out[i] = s.ID
	}
	return out
}

// unknownVolume reports whether the host has a volume that no record is about,
// for which the same holds as for machines.
func (w *Worker) unknownVolume(id string) bool {
	if w.cfg.Forget || bourse.VolumeID(id).Validate() != nil {
		return false
	}
	err := w.store.View(func(tx *store.Tx) error {
		_, err := tx.Volume(bourse.VolumeID(id))
		return err
	})
	return bourse.CodeOf(err) == bourse.CodeNotFound
}
