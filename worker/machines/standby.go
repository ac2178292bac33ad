package machines

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// StandIn starts a stopped machine since one that it stands by for is lost, and
// returns when it has started. One that stands in for any machine already, runs, or
// ended while it stood in, is left alone. A lease keeps callers away, not the
// worker. Errors are those of Start.
func (ms *Machines) StandIn(ctx context.Context, id, primary bourse.MachineID, why string) error {
	_, err := ms.start(ctx, id, starting{
		may: func(m *bourse.Machine) error {
			if m.Boot.StandsIn != "" || m.State != bourse.StateStopped && m.State != bourse.StateFailed {
				return errAlready
			}
			return nil
		},
		write: func(m *bourse.Machine) []bourse.Event {
			m.Boot.StandsIn = primary
			return []bourse.Event{{Type: bourse.EventStandIn, State: m.State, Source: bourse.SourceWorker, Reason: why}}
		},
	})
	return err
}

// StandDown stops a machine that stands in for one that needs it no more, and
// returns when that is recorded. It is repeated without harm. CodeConflict: someone
// holds the machine's lease, and is to be done with it first.
func (ms *Machines) StandDown(ctx context.Context, id, primary bourse.MachineID, why string) error {
	_, err := ms.begin(ctx, ms.defs.stop, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		return standDown(tx, id, primary, func(m *bourse.Machine) ([]bourse.Event, error) {
			if err := may(m, bourse.CallStop, ""); err != nil {
				return nil, err
			}
			m.Boot.Requested = true
			m.State = bourse.StateStopping
			return []bourse.Event{{Type: bourse.EventStandDown, State: m.State, Source: bourse.SourceWorker, Reason: why}}, nil
		})
	}))
	return ignoreAlready(err)
}

// Rest notes that the machine for which this one stood in is lost no more: it ended
// meanwhile, and would stand in the next time.
func (ms *Machines) Rest(ctx context.Context, id, primary bourse.MachineID) error {
	return ignoreAlready(ms.state.Commit(ctx, id, func(tx *store.Tx) error {
		return standDown(tx, id, primary, func(m *bourse.Machine) ([]bourse.Event, error) {
			if m.State != bourse.StateStopped && m.State != bourse.StateFailed {
				return nil, errAlready
			}
			return nil, nil
		})
	}))
}

func standDown(tx *store.Tx, id, primary bourse.MachineID, change func(*bourse.Machine) ([]bourse.Event, error)) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Boot.StandsIn != primary {
			return false, nil, errAlready
		}
		events, err := change(m)
		m.Boot.StandsIn = ""
		return true, events, err
	})
	return err
}

// StopIf stops a machine, or suspends it, if check, in the transaction that records
// it, returns why and no error. It returns when it is recorded that the machine is
// stopping, or is suspended. Errors: that of check; conflict while someone holds its
// lease; failed_precondition and unavailable when it cannot be suspended, now or ever.
func (ms *Machines) StopIf(ctx context.Context, id bourse.MachineID, freeze bool, check func(*store.Tx, *bourse.Machine) (why string, err error)) error {
	def, call, to, event := ms.defs.stop, bourse.CallStop, bourse.StateStopping, bourse.EventStop
	if freeze {
		def, call, to, event = ms.defs.suspend, bourse.CallSuspend, bourse.StateSuspending, bourse.EventSuspend
	}
	run, err := ms.begin(ctx, def, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			why, err := check(tx, m)
			if err == nil {
				err = may(m, call, "")
			}
			if err == nil && freeze {
				err = freezable(ms.host, m)
			}
			m.State, m.Boot.Requested = to, m.Boot.Requested || !freeze
			return true, []bourse.Event{{Type: event, State: to, Source: bourse.SourceWorker, Reason: why}}, err
		})
		return err
	}))
	if err == nil && freeze {
		_, err = run.Applied(ctx)
	}
	return ignoreAlready(err)
}

func ignoreAlready(err error) error {
	if errors.Is(err, errAlready) {
		return nil
	}
	return err
}
