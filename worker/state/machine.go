package state

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// kindMachine is the kind of a machine's entries in the store's log.
const kindMachine = "machine"

// RecentEvents is the number of events that are usually read together with a machine.
const RecentEvents = 20

// AppendEvent adds an event of m to the log. It is called in the transaction that changes m. The event's id is derived
// from its type, boot, state and time, so an event that is recorded again after a crash keeps its id.
func AppendEvent(tx *store.Tx, m *bourse.Machine, run string, e bourse.Event) error {
	e.Instance, e.ID = m.Instance, eventID(m, e)
	_, err := tx.Append(store.Entry{Kind: kindMachine, ID: string(m.ID), Run: run, Event: e})
	return err
}

func eventID(m *bourse.Machine, e bourse.Event) bourse.EventID {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{m.ID, m.Instance, m.Boot.Number, e.Type, e.State, e.At.UnixNano()}) // writing to a hash cannot fail
	return bourse.EventIDAt(e.At, [10]byte(h.Sum(nil)))
}

// ReadEvents returns a machine's latest events, newest first. If limit is 0, it returns all events.
func ReadEvents(tx *store.Tx, id bourse.MachineID, limit int) ([]bourse.Event, error) {
	entries, err := tx.Entries(kindMachine, string(id), limit)
	if err != nil {
		return nil, err
	}
	out := make([]bourse.Event, len(entries))
	for i := range entries {
		out[i] = entries[i].Event
	}
	return out, nil
}

// ReadMachine returns a machine with its latest events.
func ReadMachine(tx *store.Tx, id bourse.MachineID, events int) (bourse.Machine, error) {
	m, err := tx.Machine(id)
	if err != nil {
		return m, err
	}
	m.LastEvents, err = ReadEvents(tx, id, events)
	return m, err
}

// ChangeMachine reads a machine, passes it to change, and writes the changed machine
// and the returned events, all in tx. If change returns keep == false, nothing is
// written.
func ChangeMachine(tx *store.Tx, id bourse.MachineID, change func(m *bourse.Machine) (keep bool, events []bourse.Event, err error)) (bourse.Machine, error) {
	return ChangeMachineAt(tx, id, time.Now().UTC(), change)
}

// NextVersion returns the new version of a record that is about to change. It is the current time or, if the clock was
// set back, slightly later than the last version. Versions must always increase, because readers keep the later of two
// versions.
func NextVersion(last, now time.Time) time.Time {
	if now.After(last) {
		return now
	}
	return last.Add(1)
}

// ChangeMachineAt is like ChangeMachine, but uses now as the time of the change.
func ChangeMachineAt(tx *store.Tx, id bourse.MachineID, now time.Time, change func(m *bourse.Machine) (keep bool, events []bourse.Event, err error)) (bourse.Machine, error) {
	m, err := tx.Machine(id)
	if err != nil {
		return m, err
	}
	from := m.State
	keep, events, err := change(&m)
	if err != nil || !keep {
		return m, err
	}
	m.UpdatedAt = NextVersion(m.UpdatedAt, now)
	if err := tx.PutMachine(&m); err != nil {
		return m, err
	}
	for _, e := range events {
		e.From = from
		if e.At.IsZero() {
			e.At = m.UpdatedAt
		}
		if err := AppendEvent(tx, &m, "", e); err != nil {
			return m, err
		}
		from = e.State
	}
	return m, nil
}

// Commit executes fn in a durable transaction, and then notifies all goroutines that are waiting for a change to the
// machine.
func (s *State) Commit(ctx context.Context, id bourse.MachineID, fn func(*store.Tx) error) error {
	err := s.Store.Update(ctx, fn)
	switch {
	case err == nil:
		s.Machines.Applied(id)
	case ctx.Err() != nil: // the transaction may still succeed
		s.Machines.wake(id)
		s.Machines.Submitted(id)
	default: // nothing has changed, but an unnecessary notification does no harm
		s.Machines.wake(id)
	}
	return err
}

// Machine waits until everything that was submitted to the store before the call is durable, and then returns a
// machine's record.
func (s *State) Machine(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	if err := s.Store.Sync(ctx); err != nil {
		return bourse.Machine{}, err
	}
	var m bourse.Machine
	err := s.Store.View(func(tx *store.Tx) error {
		var err error
		m, err = ReadMachine(tx, id, RecentEvents)
		return err
	})
	return m, err
}

// AwaitMachine waits until wanted returns true for the machine, which it reads again
// after each change. It returns the machine.
func (s *State) AwaitMachine(ctx context.Context, id bourse.MachineID, wanted func(*bourse.Machine) bool) (bourse.Machine, error) {
	for {
		change := s.Machines.Next(id)
		m, err := s.Machine(ctx, id)
		if err != nil || wanted(&m) {
			return m, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return m, context.Cause(ctx)
		}
	}
}

// Versions returns the recorded versions of a machine with their original configs, newest first.
func (s *State) Versions(ctx context.Context, id bourse.MachineID) ([]bourse.Version, error) {
	if err := s.Store.Sync(ctx); err != nil {
		return nil, err
	}
	var out []bourse.Version
	err := s.Store.View(func(tx *store.Tx) error {
		m, err := tx.Machine(id)
		if err != nil {
			return err
		}
		if out, err = tx.Versions(id); err != nil {
			return err
		}
		if len(out) == 0 || out[0].Instance != m.Instance {
			out = slices.Insert(out, 0, bourse.Version{Instance: m.Instance, Config: m.Config})
		}
		return nil
	})
	return out, err
}
