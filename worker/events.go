package worker

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// kindMachine is the kind of a machine's entries in the store's log.
const kindMachine = "machine"

// recentEvents is how many events come with a machine that is read.
const recentEvents = 20

// eventDetail is the part of an event that the log keeps as its detail.
type eventDetail struct {
	Instance bourse.InstanceID `json:"instance,omitempty"`
	Exit     *bourse.ExitEvent `json:"exit,omitempty"`
	Pull     *bourse.PullEvent `json:"pull,omitempty"`
}

// appendEvent writes what happened to m into the log, in the transaction that
// changes m. The event's id follows from its run, type, boot and time, so an
// event that is told again after a crash keeps the id it had.
func appendEvent(tx *store.Tx, m *bourse.Machine, run string, e bourse.Event) error {
	e.Instance = m.Instance
	detail, err := json.Marshal(eventDetail{Instance: e.Instance, Exit: e.Exit, Pull: e.Pull})
	if err != nil {
		return err
	}
	_, err = tx.Append(store.Entry{
		At: e.At, Kind: kindMachine, ID: string(m.ID), Run: run, Type: string(e.Type),
		From: string(e.From), To: string(e.State), Source: string(e.Source),
		Event: eventID(m, e), Detail: detail,
	})
	return err
}

func eventID(m *bourse.Machine, e bourse.Event) bourse.EventID {
	h := sha256.New()
	_ = json.NewEncoder(h).Encode([]any{m.ID, m.Instance, m.Boot.Number, e.Type, e.State, e.At.UnixNano()}) // a hash takes all writes
	return bourse.EventIDAt(e.At, [10]byte(h.Sum(nil)))
}

// readEvents gives the latest events of a machine, newest first; limit 0
// means all.
func readEvents(tx *store.Tx, id bourse.MachineID, limit int) ([]bourse.Event, error) {
	entries, err := tx.Entries(kindMachine, string(id), limit)
	if err != nil {
		return nil, err
	}
	out := make([]bourse.Event, 0, len(entries))
	for _, e := range entries {
		var d eventDetail
		if len(e.Detail) > 0 {
			if err := json.Unmarshal(e.Detail, &d); err != nil {
				return nil, bourse.Errorf(bourse.CodeInternal, "event %s of machine %s: %w", e.Event, id, err)
			}
		}
		out = append(out, bourse.Event{
			ID: e.Event, Type: bourse.EventType(e.Type), From: bourse.State(e.From), State: bourse.State(e.To),
			Source: bourse.Source(e.Source), At: e.At, Instance: d.Instance, Exit: d.Exit, Pull: d.Pull,
		})
	}
	return out, nil
}

// readMachine reads a machine with its latest events.
func readMachine(tx *store.Tx, id bourse.MachineID, events int) (bourse.Machine, error) {
	m, err := tx.Machine(id)
	if err != nil {
		return m, err
	}
	m.LastEvents, err = readEvents(tx, id, events)
	return m, err
}

// changeMachine reads a machine, lets change decide and alter it, and writes
// it with the events that change returns, all in tx. A change that returns
// keep == false leaves everything as it is.
func changeMachine(tx *store.Tx, id bourse.MachineID, change func(m *bourse.Machine) (keep bool, events []bourse.Event, err error)) (bourse.Machine, error) {
	return changeMachineAt(tx, id, time.Now().UTC(), change)
}

// nextVersion returns the version of a record that is changed now: its time,
// and always later than the last one, whatever clocks do. Who was told of two
// versions keeps the later.
func nextVersion(last, now time.Time) time.Time {
	if now.After(last) {
		return now
	}
	return last.Add(1)
}

// changeMachineAt is changeMachine with the time of the change.
func changeMachineAt(tx *store.Tx, id bourse.MachineID, now time.Time, change func(m *bourse.Machine) (keep bool, events []bourse.Event, err error)) (bourse.Machine, error) {
	m, err := tx.Machine(id)
	if err != nil {
		return m, err
	}
	from := m.State
	keep, events, err := change(&m)
	if err != nil || !keep {
		return m, err
	}
	m.UpdatedAt = nextVersion(m.UpdatedAt, now)
	if err := tx.PutMachine(&m); err != nil {
		return m, err
	}
	for _, e := range events {
		e.From = from
		if e.At.IsZero() {
			e.At = m.UpdatedAt
		}
		if err := appendEvent(tx, &m, "", e); err != nil {
			return m, err
		}
		from = e.State
	}
	return m, nil
}
