package machines

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Promote starts a stopped or failed standby because its primary machine is lost, and returns once the standby has
// started. It does nothing if the standby is in any other state, or if it was promoted before and has not been demoted
// or reset since. Promote ignores leases. It returns the same errors as Start.
func (ms *Machines) Promote(ctx context.Context, id, primary bourse.MachineID, why string) error {
	_, err := ms.start(ctx, id, startOptions{
		may: func(m *bourse.Machine) error {
			if m.Boot.PromotedFor != "" || m.State != bourse.StateStopped && m.State != bourse.StateFailed {
				return errAlready
			}
			return nil
		},
		write: func(m *bourse.Machine) []bourse.Event {
			m.Boot.PromotedFor = primary
			return []bourse.Event{{Type: bourse.EventPromote, State: m.State, Source: bourse.SourceWorker, Reason: why}}
		},
	})
	return err
}

// Demote stops a standby because primary, the machine that it replaces, is running again or is replaced by another
// standby. It returns once the standby is recorded as stopping, and is idempotent. It returns CodeConflict while a
// caller holds the machine's lease.
func (ms *Machines) Demote(ctx context.Context, id, primary bourse.MachineID, why string) error {
	_, err := ms.begin(ctx, ms.defs.stop, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		return endStandby(tx, id, primary, func(m *bourse.Machine) ([]bourse.Event, error) {
			if err := mayCall(m, bourse.CallStop, ""); err != nil {
				return nil, err
			}
			m.Boot.Requested = true
			m.State = bourse.StateStopping
			return []bourse.Event{{Type: bourse.EventDemote, State: m.State, Source: bourse.SourceWorker, Reason: why}}, nil
		})
	}))
	return ignoreAlready(err)
}

// ResetStandby records that a stopped standby no longer replaces primary, because primary is no longer lost. The
// standby may then be promoted again.
func (ms *Machines) ResetStandby(ctx context.Context, id, primary bourse.MachineID) error {
	return ignoreAlready(ms.state.Commit(ctx, id, func(tx *store.Tx) error {
		return endStandby(tx, id, primary, func(m *bourse.Machine) ([]bourse.Event, error) {
			if m.State != bourse.StateStopped && m.State != bourse.StateFailed {
				return nil, errAlready
			}
			return nil, nil
		})
	}))
}

func endStandby(tx *store.Tx, id, primary bourse.MachineID, change func(*bourse.Machine) ([]bourse.Event, error)) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Boot.PromotedFor != primary {
			return false, nil, errAlready
		}
		events, err := change(m)
		m.Boot.PromotedFor = ""
		return true, events, err
	})
	return err
}

// StopIf stops a machine, or suspends it if freeze is set, unless check returns an error. It calls check in the
// transaction that records the change. The transaction also records the reason (why) that check returns. StopIf returns
// once the machine is recorded as stopping, or once it is suspended. Errors: check's error; conflict while a caller
// holds the lease; failed_precondition if the machine can never be suspended; unavailable if it cannot be suspended
// now.
func (ms *Machines) StopIf(ctx context.Context, id bourse.MachineID, freeze bool, check func(*store.Tx, *bourse.Machine) (why string, err error)) error {
	def, call, to, event := ms.defs.stop, bourse.CallStop, bourse.StateStopping, bourse.EventStop
	if freeze {
		def, call, to, event = ms.defs.suspend, bourse.CallSuspend, bourse.StateSuspending, bourse.EventSuspend
	}
	run, err := ms.begin(ctx, def, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			why, err := check(tx, m)
			if err == nil {
				err = mayCall(m, call, "")
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
