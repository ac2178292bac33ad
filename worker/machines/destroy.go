package machines

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Destroy removes a machine and all it left on the host, and answers when it
// is gone. One that runs is refused unless act.Force is set.
func (ms *Machines) Destroy(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	var old bourse.Machine
	run, err := ms.beginDestroy(ctx, id, bourse.SourceUser, act.By, func(m *bourse.Machine) error {
		old = *m
		return mayDestroy(m, act)
	})
	if err != nil {
		return fabric.ActReply{}, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return fabric.ActReply{}, err
	}
	now, err := ms.state.Machine(ctx, id)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

func mayDestroy(m *bourse.Machine, act fabric.Act) error {
	err := may(m, bourse.CallDestroy, act.Nonce)
	if act.Force && bourse.CodeOf(err) == bourse.CodeFailedPrecondition {
		return nil
	}
	return err
}

// beginDestroy records that a machine will be destroyed. For one that is being
// destroyed it queues behind that, for one that is gone it is not_found.
func (ms *Machines) beginDestroy(ctx context.Context, id bourse.MachineID, source bourse.Source, by string, may func(*bourse.Machine) error) (*fsm.Handle[machineResult], error) {
	return ms.ops.begin(ctx, ms.ops.defs.destroy, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, state.ErrNoMachine
			}
			if err := may(m); err != nil || m.State == bourse.StateDestroying {
				return false, nil, err
			}
			event := intendDestroy(m, source)
			event.By = by
			return true, []bourse.Event{event}, nil
		})
		return err
	}))
}

// Discard has a machine destroyed that no one needs any more: one whose order is
// canceled, say. It answers when that is recorded.
func (ms *Machines) Discard(ctx context.Context, id bourse.MachineID) error {
	_, err := ms.beginDestroy(ctx, id, bourse.SourceWorker, "", func(*bourse.Machine) error { return nil })
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}

func intendDestroy(m *bourse.Machine, source bourse.Source) bourse.Event {
	m.Boot.Requested = true
	m.State = bourse.StateDestroying
	return bourse.Event{Type: bourse.EventDestroy, State: m.State, Source: source}
}

// killStep ends what runs of a machine; its exit is recorded before the
// machine goes.
func (o *operations) killStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := o.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if alive(&m) {
		if err := o.end(ctx, &m, "SIGKILL", 0); err != nil {
			return fsm.Retry(fmt.Errorf("kill machine %s: %w", m.ID, err))
		}
	}
	return fsm.Done()
}

// removeStep removes what the driver keeps of a machine, then its place in
// the ledger. The record stays for a while, to be read.
func (o *operations) removeStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := o.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if err := o.leaveNothing(ctx, &m); err != nil {
		return fsm.Retry(fmt.Errorf("remove machine %s: %w", m.ID, err))
	}
	o.images.Drop(m.ID)
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, nil
			}
			if err := o.volumes.Detach(tx, m); err != nil {
				return false, nil, err
			}
			if err := o.tasks.Gone(tx, m); err != nil {
				return false, nil, err
			}
			m.State, m.Takes, m.Devices, m.Lease, m.Next = bourse.StateDestroyed, nil, nil, nil, nil
			m.Boot.PID, m.Boot.Port = 0, 0
			m.Config.Files = nil // large, and secret
			return true, []bourse.Event{{Type: bourse.EventDestroy, State: m.State, Source: bourse.SourceWorker}}, nil
		})
		return err
	}))
}
