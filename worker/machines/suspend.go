package machines

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"

	"github.com/bourse-dev/bourse/worker/state"
)

// Suspend freezes a machine's program, and returns once it is frozen. The machine keeps its resources, so it can be
// resumed even if the host is full. Errors: failed_precondition if the machine's state does not allow it or the host
// cannot freeze programs; conflict while another caller holds the machine's lease; unavailable if the program cannot be
// frozen now.
func (ms *Machines) Suspend(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
	var old bourse.Machine
	run, err := ms.begin(ctx, ms.defs.suspend, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := mayCall(m, bourse.CallSuspend, act.Nonce); err != nil {
				return false, nil, err
			}
			if err := freezable(ms.host, m); err != nil {
				return false, nil, err
			}
			m.State = bourse.StateSuspending
			return true, []bourse.Event{{Type: bourse.EventSuspend, State: m.State, Source: bourse.SourceUser}}, nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		return fabric.ActReply{Previous: old.State, Machine: old}, nil
	}
	if err != nil {
		return fabric.ActReply{}, err
	}
	now, err := ms.appliedMachine(ctx, id, run)
	return fabric.ActReply{Previous: old.State, Machine: now}, err
}

// freezable returns failed_precondition if this worker can never suspend the machine.
func freezable(host *admit.Host, m *bourse.Machine) error {
	kind := m.Config.ImageKind()
	switch {
	case kind == bourse.PollerImage:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot be suspended: it runs on its poller's host; stop it instead", m.ID)
	case host.Labels.Load().ByKind[kind]["suspend"] == "":
		return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot be suspended: its host has no cgroups that can freeze processes; stop it instead", m.ID)
	}
	return nil
}

// freezeStep freezes the program of a machine that is being suspended. If that fails, the program continues to run.
func (ms *Machines) freezeStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateSuspending || !mayHaveTask(&m) {
		return fsm.Finish() // the machine was stopped in the meantime, or its program has exited
	}
	err = bourse.Errorf(bourse.CodeUnavailable, "the program of machine %s could not be frozen and continues to run", m.ID)
	failed := r.Attempt >= launchAttempts
	if !failed {
		err = ms.freeze(ctx, &m, true)
	}
	switch code := bourse.CodeOf(err); {
	case err == nil:
		return fsm.Done(setState(m.ID, m.Boot.Number, bourse.StateSuspending, bourse.StateSuspended, bourse.EventSuspend))
	case code == bourse.CodeNotFound, code == bourse.CodeFailedPrecondition && ms.hasEnded(ctx, &m):
		return fsm.Finish() // the goroutine that watches the task records its exit
	case code != bourse.CodeFailedPrecondition && !failed:
		return fsm.Retry(err)
	}
	if thaw := ms.freeze(ctx, &m, false); thaw != nil && bourse.CodeOf(thaw) != bourse.CodeNotFound && bourse.CodeOf(thaw) != bourse.CodeFailedPrecondition {
		return fsm.Retry(errors.Join(err, thaw))
	}
	return fsm.Abort(err, setState(m.ID, m.Boot.Number, bourse.StateSuspending, bourse.StateStarted, bourse.EventResume))
}

// thawStep resumes the program of a suspended machine.
func (ms *Machines) thawStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStarting || !m.Boot.Frozen {
		return fsm.Finish()
	}
	err = ms.freeze(ctx, &m, false)
	code := bourse.CodeOf(err)
	if err != nil && code != bourse.CodeNotFound && code != bourse.CodeFailedPrecondition {
		return fsm.Retry(err)
	}
	if d, known := ms.drivers.of(m.Config.ImageKind()); known == nil {
		ms.watch(d, TaskOf(&m), errTextLost)
	}
	if err != nil { // the goroutine that watches the task then records the program as lost
		err = bourse.Errorf(bourse.CodeUnavailable, "machine %s has lost its suspended program: start it again", m.ID) // see startOnce
		return fsm.Abort(err, setState(m.ID, m.Boot.Number, bourse.StateStarting, bourse.StateSuspended, bourse.EventSuspend))
	}
	return fsm.Done(setState(m.ID, m.Boot.Number, bourse.StateStarting, bourse.StateStarted, bourse.EventResume))
}

func (ms *Machines) freeze(ctx context.Context, m *bourse.Machine, frozen bool) error {
	d, err := ms.drivers.of(m.Config.ImageKind())
	if err != nil {
		return err
	}
	return d.Freeze(ctx, TaskOf(m), frozen)
}

// hasEnded reports whether a machine's program is known to have exited.
func (ms *Machines) hasEnded(ctx context.Context, m *bourse.Machine) bool {
	d, err := ms.drivers.of(m.Config.ImageKind())
	if err != nil {
		return false
	}
	status, err := d.Inspect(ctx, TaskOf(m))
	return bourse.CodeOf(err) == bourse.CodeNotFound || err == nil && status.Exit != nil
}

// setState returns an fsm.Write that moves a machine from one state (from) to another (to). The write has no effect if
// the machine is not in the state from, if it has been booted again since the given boot, or if its program has exited.
func setState(id bourse.MachineID, boot int, from, to bourse.State, event bourse.EventType) fsm.Write {
	return state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != from || m.Boot.Number != boot || m.Boot.Exit != nil {
				return false, nil, nil
			}
			m.State, m.Boot.Frozen = to, to == bourse.StateSuspended
			return true, []bourse.Event{{Type: event, State: to, Source: bourse.SourceWorker, At: time.Now().UTC()}}, nil
		})
		return err
	})
}
