package machines

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// createAttach and createLaunch start an order's machine for the first time.
func (o *operations) createAttach(ctx context.Context, r *machineRun) fsm.Outcome {
	return o.attach(ctx, r, o.unfilled)
}

func (o *operations) createLaunch(ctx context.Context, r *machineRun) fsm.Outcome {
	return o.launch(ctx, r, o.unfilled)
}

// unfilled ends an order's machine that cannot be started: the order is not
// filled here, the machine ends as destroyed, and the claim is answered with
// the reason. When the host does not let go of what the machine left there,
// the machine is destroyed as any other, for as long as that takes, and keeps
// its place in the ledger.
func (o *operations) unfilled(ctx context.Context, _ *machineRun, m *bourse.Machine, cause error) fsm.Outcome {
	nothing := IsPlain(m) && m.Config.ImageKind() != bourse.PollerImage // a host may have claimed it in the last moment
	if nothing || o.leaveNothing(ctx, m) == nil {
		return fsm.Abort(cause, state.InTx(func(tx *store.Tx) error { return o.recordUnfilled(tx, m, cause, bourse.StateDestroyed) }))
	}
	// Queued behind this run. A crash between the two leaves it alone, with a
	// machine that is being destroyed.
	_, err := o.begin(ctx, o.defs.destroy, machineRequest{Machine: m.ID}, state.InTx(func(tx *store.Tx) error {
		return o.recordUnfilled(tx, m, cause, bourse.StateDestroying)
	}))
	if err != nil {
		return fsm.Retry(errors.Join(cause, err))
	}
	return fsm.Abort(cause)
}

// leaveNothing removes all that the host has of a machine.
func (o *operations) leaveNothing(ctx context.Context, m *bourse.Machine) error {
	d, err := o.drivers.of(m.Config.ImageKind())
	if err == nil {
		err = d.Destroy(ctx, m.ID)
	}
	if err != nil { // what it may still use stays
		return err
	}
	return o.fittings.Clear(ctx, m)
}

// recordUnfilled takes a machine that cannot be started from its order, and
// leads it to destroying or destroyed. It fails when something else was done
// something about the machine: then it is not its run's any more.
func (o *operations) recordUnfilled(tx *store.Tx, m *bourse.Machine, cause error, last bourse.State) error {
	if rec, ok, err := tx.Order(m.Order); err != nil {
		return err
	} else if ok && rec.Machine == m.ID {
		rec.Machine = ""
		rec.Decision.Outcome = bourse.OutcomeRefused
		if rec.Task != nil {
			err = tx.TaskUndone(rec.ID)
		} else {
			err = tx.PutOrder(rec)
		}
		if err != nil {
			return err
		}
	}
	for _, next := range []bourse.State{bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed} {
		if _, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if next == bourse.StateFailed && m.State != bourse.StateStarting && m.State != bourse.StateCreated {
				return false, nil, errMoved
			}
			took, devices := m.Takes, m.Devices
			m.State = next
			if next == bourse.StateDestroyed {
				if err := o.volumes.Detach(tx, m); err != nil {
					return false, nil, err
				}
			}
			events := unlaunched(m, cause)
			if last == bourse.StateDestroying { // something of it may still run
				m.Takes, m.Devices = took, devices
			}
			return true, events, nil
		}); err != nil || next == last {
			return err
		}
	}
	return nil
}

// unlaunched returns the events of a machine that goes from starting to its end
// because it could not be launched, and clears what it took.
func unlaunched(m *bourse.Machine, cause error) []bourse.Event {
	now := time.Now().UTC()
	m.Boot.PID = 0
	switch m.State {
	case bourse.StateFailed:
		m.Boot.Exit = &bourse.Exit{Code: -1, Error: bourse.MessageOf(cause), At: now}
		settle(m)
		return []bourse.Event{{
			Type: bourse.EventExit, State: m.State, Source: bourse.SourceWorker, At: now,
			Exit: &bourse.ExitEvent{Exit: *m.Boot.Exit},
		}}
	case bourse.StateDestroyed:
		m.Takes, m.Lease, m.Config.Files = nil, nil, nil
		return []bourse.Event{{Type: bourse.EventDestroy, State: m.State, Source: bourse.SourceWorker, At: now}}
	default:
		return nil
	}
}

// prepareStep settles an order's machine that is not launched: a host process
// has nothing to prepare, and an image is there by now.
func (o *operations) prepareStep(_ context.Context, r *machineRun) fsm.Outcome {
	o.images.Drop(r.Request.Machine)
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateCreated {
				return false, nil, nil // destroyed meanwhile
			}
			m.State = bourse.StateStopped
			return true, []bourse.Event{{Type: bourse.EventPrepare, State: m.State, Source: bourse.SourceWorker}}, nil
		})
		return err
	}))
}
