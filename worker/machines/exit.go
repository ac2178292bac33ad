package machines

import (
	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// aftermath is what follows a task's end.
type aftermath string

const (
	nothing aftermath = "nothing" // known already, or of an earlier boot
	rest    aftermath = "rest"    // the machine's next state is not ours to begin
	revive  aftermath = "revive"  // its policy starts it again
	remove  aftermath = "remove"  // auto_destroy
)

// afterExit decides what follows the end of a boot of m, and records it in m:
// its state, what it takes, the event. It decides from its arguments alone.
func afterExit(m *bourse.Machine, boot int, exit bourse.Exit) (aftermath, bourse.Event) {
	if m.Boot.Number != boot || m.Boot.Exit != nil || m.State == bourse.StateDestroyed {
		return nothing, bourse.Event{}
	}
	told := &bourse.ExitEvent{Exit: exit, RequestedStop: m.Boot.Requested}
	next := rest
	switch {
	case m.State == bourse.StateDestroying:
	case m.State == bourse.StateReplacing: // the update's run goes on with it
	case m.State == bourse.StateRestarting: // on request: the run goes on with it
		told.Restarting = true
	case !m.Boot.Requested && !m.Boot.Frozen && policyRestarts(m, exit): // what was lost while it was suspended is not started unasked
		next, m.State, told.Restarting = revive, bourse.StateRestarting, true
		m.Boot.Restarts = append(m.Boot.Restarts, exit.At)
	case m.Config.AutoDestroy:
		next, m.State = remove, bourse.StateStopped
	default:
		m.State = bourse.StateStopped
	}
	told.RestartCount = len(m.Boot.Restarts)
	if m.State == bourse.StateStopped {
		settle(m)
	}
	m.Boot.Exit, m.Boot.PID, m.Boot.Frozen = &exit, 0, false
	return next, bourse.Event{Type: bourse.EventExit, State: m.State, Source: bourse.SourceWorker, At: exit.At, Exit: told}
}

// settle returns to the ledger what only a running machine has, but for what its
// next version will take. Its port stays its own.
func settle(m *bourse.Machine) {
	m.Takes, m.Devices = admit.Resting(m.Takes), nil
	if m.Next != nil {
		m.Takes = admit.Most(m.Takes, m.Next.Takes)
	}
}

// policyRestarts reports whether m's policy starts it again after this exit. It
// forgets restarts that are out of the window.
func policyRestarts(m *bourse.Machine, exit bourse.Exit) (again bool) {
	again, m.Boot.Restarts = m.Config.RestartPolicy().Again(exit, m.Boot.Restarts)
	return again
}

// recordExit writes a task's end, in the transaction that was given. It fails
// with errMoved when what follows is no longer what the caller prepared for,
// and with errNotStarted before the task's start was recorded.
func recordExit(tx *store.Tx, id bourse.MachineID, boot int, exit bourse.Exit, prepared aftermath) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if notStarted(m, boot) {
			return false, nil, errNotStarted
		}
		next, event := afterExit(m, boot, exit)
		if next != prepared {
			return false, nil, errMoved
		}
		if next == nothing {
			return false, nil, nil
		}
		events := []bourse.Event{event}
		if next == remove {
			events = append(events, intendDestroy(m, bourse.SourceWorker))
		}
		return true, events, nil
	})
	return err
}

// notStarted reports whether the start of this boot has still to be recorded: the
// end of a task is recorded after its start.
func notStarted(m *bourse.Machine, boot int) bool {
	return m.Boot.Number == boot && m.State == bourse.StateStarting
}
