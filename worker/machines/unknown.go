package machines

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
		f, ok := ms.ops.drivers.all[kind].(driver.Finder)
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
