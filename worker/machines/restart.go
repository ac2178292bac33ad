package machines

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Restart stops a machine and starts it again, keeping its place in the
// ledger, and answers when it has started; a stopped one is just started.
func (ms *Machines) Restart(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	if act.Force {
		act.Signal = "SIGKILL"
	}
	old, err := ms.state.Machine(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	if may(&old, bourse.CallRestart, act.Nonce) == nil {
		if err := ms.awaitSecrets(ctx, &old, act.Secrets, act.AppKeys); err != nil {
			return fabric.ActReply{}, err
		}
	}
	run, err := ms.ops.begin(ctx, ms.ops.defs.of(&old).restart, stopRequest(id, act), state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := may(m, bourse.CallRestart, act.Nonce); err != nil {
				return false, nil, err
			}
			if m.State != bourse.StateStarted {
				return false, nil, errAlready // nothing to stop
			}
			if withSecrets(m) {
				if err := keepKeys(tx, id, act.AppKeys); err != nil {
					return false, nil, err
				}
			}
			m.Boot.Requested, m.Boot.StandsIn = true, "" // it is the caller's from now on
			m.Secrets = max(m.Secrets, act.Secrets)
			m.State = bourse.StateRestarting
			return true, []bourse.Event{{Type: bourse.EventRestart, State: m.State, Source: bourse.SourceUser, By: act.By}}, nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		return ms.Start(ctx, id, act)
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	if _, err := run.Applied(ctx); err != nil {
		return fabric.ActReply{}, err
	}
	now, err := ms.state.Machine(ctx, id)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

// rebootStep records the next boot of a machine that was stopped for it.
func (o *operations) rebootStep(_ context.Context, r *machineRun) fsm.Outcome {
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateRestarting || m.Boot.Exit == nil {
				return false, nil, nil
			}
			port, err := o.choosePort(tx, m)
			recordBoot(m, port)
			return true, nil, err
		})
		return err
	}))
}

// reviveStep ends the wait of a restart policy: the machine is started again,
// unless it was stopped or destroyed meanwhile.
func (o *operations) reviveStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := o.state.Machine(ctx, r.Request.Machine)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return fsm.Finish()
	}
	if err != nil {
		return fsm.Retry(err)
	}
	_, err = o.begin(ctx, o.defs.of(&m).start, machineRequest{Machine: m.ID}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateRestarting || m.Boot.Number != r.Request.Boot {
				return false, nil, errAlready
			}
			port, err := o.choosePort(tx, m)
			recordBoot(m, port)
			return true, nil, err
		})
		return err
	}))
	switch {
	case errors.Is(err, errAlready), bourse.CodeOf(err) == bourse.CodeNotFound:
		return fsm.Finish()
	case err != nil:
		return fsm.Retry(err)
	}
	return fsm.Done()
}
