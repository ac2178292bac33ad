package worker

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// errAlready says that the machine is where the caller wants it.
var errAlready = errors.New("already there")

// start starts a stopped machine and answers when it has started. Errors:
// failed_precondition from another state, or when the program cannot be
// started; insufficient_capacity when the host has no room for it now;
// conflict while another holds its lease.
func (w *Worker) start(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	for {
		reply, err := w.startOnce(ctx, id, act)
		if !errors.Is(err, errTaken) {
			return reply, err
		}
	}
}

func (w *Worker) startOnce(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	old, err := w.machine(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	if err := w.store.Short(); err != nil && mayStart(&old, act.Nonce) == nil {
		return fabric.ActReply{}, err
	}
	port, err := w.pickPort(&old)
	if err != nil {
		return fabric.ActReply{}, err
	}
	run, err := w.begin(ctx, w.defs.of(&old).start, machineRequest{Machine: id}, inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := mayStart(m, act.Nonce); err != nil {
				return false, nil, err
			}
			return true, nil, w.takeBoot(tx, m, port)
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		return fabric.ActReply{Previous: old.State, Machine: old}, nil
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	now, err := w.appliedMachine(ctx, id, run)
	if code := bourse.CodeOf(err); code == bourse.CodeInvalid || code == bourse.CodeNotFound { // its program or image, not the machine
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s failed to start: %w", id, err)
	}
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

// appliedMachine returns a machine once the run on it has ended, which the
// disk may not have yet: after a crash the run finds the task and records the
// same.
func (w *Worker) appliedMachine(ctx context.Context, id bourse.MachineID, run *fsm.Handle[machineResult]) (bourse.Machine, error) {
	if _, err := run.Applied(ctx); err != nil {
		return bourse.Machine{}, err
	}
	return w.machine(ctx, id)
}

func mayStart(m *bourse.Machine, nonce string) error {
	if err := checkLease(m, nonce); err != nil {
		return err
	}
	switch m.State {
	case bourse.StateStarted, bourse.StateStarting:
		return errAlready
	case bourse.StateStopped, bourse.StateFailed:
		return nil
	case bourse.StateStopping, bourse.StateRestarting:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine still active, refusing to start")
	case bourse.StateDestroyed:
		return errNoMachine
	default:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to start machine from current state: '%s'", m.State)
	}
}

// takeBoot takes what m needs to run from the ledger and records its next
// boot, in the transaction that was given.
func (w *Worker) takeBoot(tx *store.Tx, m *bourse.Machine, port int) error {
	committed, err := tx.CommittedAt(time.Now())
	if err != nil {
		return err
	}
	takes := w.ledger.running(&m.Config)
	if r := w.ledger.fits(less(committed, m.Takes), takes); r != nil {
		return bourse.Errorf(bourse.CodeInsufficient,
			"could not reserve resource for machine: insufficient %s available to fulfill request on the current host (%s)", r.Resource, r.Detail)
	}
	if err := portUntaken(tx, m.ID, port); err != nil {
		return err
	}
	m.Takes = takes
	if err := w.takeDevices(tx, m); err != nil {
		return err
	}
	recordBoot(m, port)
	m.Boot.Restarts = nil
	return nil
}

// less gives what is committed by all but one who has taken so much.
func less(committed, taken bourse.Amounts) bourse.Amounts {
	out := append(bourse.Amounts(nil), committed...)
	for i := range out {
		out[i].Amount -= taken.Of(out[i].Resource)
	}
	return out
}

// startAttach and startLaunch start a machine again. When that is impossible
// it has failed.
func (w *Worker) startAttach(ctx context.Context, r *machineRun) fsm.Outcome {
	return w.attach(ctx, r, w.unstarted)
}

func (w *Worker) startLaunch(ctx context.Context, r *machineRun) fsm.Outcome {
	return w.launch(ctx, r, w.unstarted)
}

// unstarted records that a machine cannot be started, once nothing of the
// attempt is left.
func (w *Worker) unstarted(ctx context.Context, _ *machineRun, m *bourse.Machine, cause error) fsm.Outcome {
	if !plain(m) {
		if err := w.leaveStopped(ctx, m); err != nil {
			return fsm.Retry(errors.Join(cause, err))
		}
	}
	return fsm.Abort(cause, inTx(func(tx *store.Tx) error {
		_, err := changeMachine(tx, m.ID, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			m.State = bourse.StateFailed
			return true, unlaunched(m, cause), nil
		})
		return err
	}))
}

// leaveStopped ends what an attempt to start m may have left running, and
// removes what a stopped machine does not keep.
func (w *Worker) leaveStopped(ctx context.Context, m *bourse.Machine) error {
	d, err := w.driverOf(m.Config.Image)
	if err == nil {
		err = d.Stop(ctx, taskOf(m), "SIGKILL", 0)
	}
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		return err
	}
	return w.vacate(ctx, m)
}
