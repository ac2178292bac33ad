package worker

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// restart stops a machine and starts it again, keeping its place in the
// ledger, and answers when it has started; a stopped one is just started.
func (w *Worker) restart(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	if act.Force {
		act.Signal = "SIGKILL"
	}
	old, err := w.machine(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	run, err := w.begin(ctx, w.defs.of(&old).restart, stopRequest(id, act), inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := mayRestart(m, act.Nonce); err != nil {
				return false, nil, err
			}
			m.Boot.Requested = true
			m.State = bourse.StateRestarting
			return true, []bourse.Event{{Type: bourse.EventRestart, State: m.State, Source: bourse.SourceUser}}, nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		return w.start(ctx, id, act)
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	if _, err := run.Applied(ctx); err != nil {
		return fabric.ActReply{}, err
	}
	now, err := w.machine(ctx, id)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

func mayRestart(m *bourse.Machine, nonce string) error {
	if err := checkLease(m, nonce); err != nil {
		return err
	}
	switch m.State {
	case bourse.StateStarted:
		return nil
	case bourse.StateStopped, bourse.StateFailed:
		return errAlready
	case bourse.StateDestroyed:
		return errNoMachine
	default:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to restart machine from current state: '%s'", m.State)
	}
}

// rebootStep records the next boot of a machine that was stopped for it.
func (w *Worker) rebootStep(_ context.Context, r *machineRun) fsm.Outcome {
	return w.reboot(r, func(m *bourse.Machine) bool { return m.State == bourse.StateRestarting && m.Boot.Exit != nil })
}

func (w *Worker) reboot(r *machineRun, due func(*bourse.Machine) bool) fsm.Outcome {
	var old bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		old, err = tx.Machine(r.Request.Machine)
		return err
	})
	if err != nil {
		return fsm.Abort(err)
	}
	port, err := w.pickPort(&old)
	if err != nil {
		return fsm.Retry(err)
	}
	return fsm.Done(inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if !due(m) {
				return false, nil, nil
			}
			if portUntaken(tx, m.ID, port) != nil { // taken since
				port, _ = w.cfg.Ports.pick(tx, m.ID) // better none than a lost restart
			}
			recordBoot(m, port)
			return true, nil, nil
		})
		return err
	}))
}

// reviveStep ends the wait of a restart policy: the machine is started again,
// unless it was stopped or destroyed meanwhile.
func (w *Worker) reviveStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := w.machine(ctx, r.Request.Machine)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return fsm.Finish()
	}
	if err != nil {
		return fsm.Retry(err)
	}
	port, err := w.pickPort(&m)
	if err != nil {
		return fsm.Retry(err)
	}
	_, err = w.begin(ctx, w.defs.of(&m).start, machineRequest{Machine: m.ID}, inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateRestarting || m.Boot.Number != r.Request.Boot {
				return false, nil, errAlready
			}
			if err := portUntaken(tx, m.ID, port); err != nil {
				return false, nil, err
			}
			recordBoot(m, port)
			return true, nil, nil
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
