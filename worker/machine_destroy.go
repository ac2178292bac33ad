package worker

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// errNoMachine is the answer for a machine that is not, or no longer, there.
var errNoMachine = bourse.Errorf(bourse.CodeNotFound, "machine not found")

// destroy removes a machine and all it left on the host, and answers when it
// is gone. One that runs is refused unless act.Force is set.
func (w *Worker) destroy(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	var old bourse.Machine
	run, err := w.beginDestroy(ctx, id, bourse.SourceUser, func(m *bourse.Machine) error {
		old = *m
		return mayDestroy(m, act)
	})
	if err != nil {
		return fabric.ActReply{}, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return fabric.ActReply{}, err
	}
	now, err := w.machine(ctx, id)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

func mayDestroy(m *bourse.Machine, act fabric.Act) error {
	if err := checkLease(m, act.Nonce); err != nil {
		return err
	}
	switch m.State {
	case bourse.StateStopped, bourse.StateCreated, bourse.StateFailed, bourse.StateDestroying:
		return nil
	default:
		if act.Force {
			return nil
		}
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to destroy machine, not currently stopped")
	}
}

// beginDestroy records that a machine will be destroyed. For one that is being
// destroyed it queues behind that, for one that is gone it is not_found.
func (w *Worker) beginDestroy(ctx context.Context, id bourse.MachineID, source bourse.Source, may func(*bourse.Machine) error) (*fsm.Handle[machineResult], error) {
	return w.begin(ctx, w.defs.destroy, machineRequest{Machine: id}, inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, errNoMachine
			}
			if err := may(m); err != nil || m.State == bourse.StateDestroying {
				return false, nil, err
			}
			return true, []bourse.Event{intendDestroy(m, source)}, nil
		})
		return err
	}))
}

func intendDestroy(m *bourse.Machine, source bourse.Source) bourse.Event {
	m.Boot.Requested = true
	m.State = bourse.StateDestroying
	return bourse.Event{Type: bourse.EventDestroy, State: m.State, Source: source}
}

// killStep ends what runs of a machine; its exit is recorded before the
// machine goes.
func (w *Worker) killStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := w.machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if alive(&m) {
		if err := w.end(ctx, &m, "SIGKILL", 0); err != nil {
			return fsm.Retry(fmt.Errorf("kill machine %s: %w", m.ID, err))
		}
	}
	return fsm.Done()
}

// removeStep removes what the driver keeps of a machine, then its place in
// the ledger. The record stays for a while, to be read.
func (w *Worker) removeStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := w.machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if err := w.leaveNothing(ctx, &m); err != nil {
		return fsm.Retry(fmt.Errorf("remove machine %s: %w", m.ID, err))
	}
	w.images.drop(m.ID)
	return fsm.Done(inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, nil
			}
			if err := w.detachVolumes(tx, m); err != nil {
				return false, nil, err
			}
			if err := w.coldGone(tx, m); err != nil {
				return false, nil, err
			}
			m.State, m.Takes, m.Devices, m.Lease = bourse.StateDestroyed, nil, nil, nil
			m.Boot.PID, m.Boot.Port = 0, 0
			m.Config.Files = nil // large, and secret
			return true, []bourse.Event{{Type: bourse.EventDestroy, State: m.State, Source: bourse.SourceWorker}}, nil
		})
		return err
	}))
}
