package machines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Stop records that a machine must stop, and begins the run that stops it. It does not wait for the run. It is not an
// error if the machine is already stopped. A machine that is waiting for its restart policy's backoff is stopped
// immediately.
func (ms *Machines) Stop(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
	var old, now bourse.Machine
	_, err := ms.begin(ctx, ms.defs.stop, stopRequest(id, act), state.InTx(func(tx *store.Tx) error {
		var err error
		now, err = state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			old = *m
			if err := mayCall(m, bourse.CallStop, act.Nonce); err != nil {
				return false, nil, err
			}
			if m.Next != nil {
				m.Next.Launch = false // the update must not start the machine's next version either
			}
			m.Boot.Requested = true
			if m.State == bourse.StateReplacing {
				return true, []bourse.Event{{Type: bourse.EventStop, State: m.State, Source: bourse.SourceUser, By: act.By}}, nil
			}
			m.State = bourse.StateStopping
			return true, []bourse.Event{{Type: bourse.EventStop, State: m.State, Source: bourse.SourceUser, By: act.By}}, nil
		})
		return err
	}))
	if errors.Is(err, errAlready) {
		now, err = old, nil
	}
	if err != nil { // after an error, the transaction may still be writing to old and now, so do not read them
		return fabric.ActReply{}, err
	}
	return fabric.ActReply{Previous: old.State, Machine: now}, nil
}

func stopRequest(id bourse.MachineID, act fabric.MachineAction) machineRequest {
	return machineRequest{Machine: id, Signal: act.Signal, Timeout: time.Duration(act.Timeout)}
}

// stopStep stops the task of a machine that is stopping or restarting. The goroutine that watches the task records the
// exit.
func (ms *Machines) stopStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if m.State != bourse.StateStopping && m.State != bourse.StateRestarting {
		return fsm.Finish() // the exit is already recorded
	}
	if !mayHaveTask(&m) {
		if m.State == bourse.StateStopping {
			if err := ms.tryTearDown(ctx, &m); err != nil {
				return fsm.Retry(err)
			}
		}
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return recordStopped(tx, m.ID) }))
	}
	signal, timeout := stopOf(&m.Config)
	if r.Request.Signal != "" {
		signal = r.Request.Signal
	}
	if r.Request.Timeout > 0 {
		timeout = r.Request.Timeout
	}
	if err := ms.end(ctx, &m, signal, timeout); err != nil {
		return fsm.Retry(err)
	}
	return fsm.Done()
}

// stopOf returns the signal and the timeout for stopping a machine's program. If the signal is "", the image's default
// applies.
func stopOf(c *bourse.Config) (bourse.Signal, time.Duration) {
	signal, timeout := c.Stop()
	if c.ImageKind() == bourse.RegistryImage && (c.StopConfig == nil || c.StopConfig.Signal == "") {
		signal = ""
	}
	return signal, timeout
}

// end stops a machine's task, and waits until the task's exit is recorded.
func (ms *Machines) end(ctx context.Context, m *bourse.Machine, signal bourse.Signal, timeout time.Duration) error {
	d, err := ms.drivers.of(m.Config.ImageKind())
	if err != nil {
		return err
	}
	if m.Boot.Frozen { // the frozen program cannot handle a signal, so kill it, which discards its memory
		signal, timeout = "SIGKILL", 0
	}
	err = d.Stop(ctx, TaskOf(m), signal, timeout)
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound { // CodeNotFound means that the task was not launched yet
		return err
	}
	ms.watch(d, TaskOf(m), errTextNotStarted)
	_, err = ms.state.AwaitMachine(ctx, m.ID, func(now *bourse.Machine) bool { return now.Boot.Number != m.Boot.Number || now.Boot.Exit != nil })
	return err
}

// recordStopped records that a machine has stopped. The machine must have been waiting for its restart policy's
// backoff, so it has no task.
func recordStopped(tx *store.Tx, id bourse.MachineID) error {
	_, err := state.ChangeMachine(tx, id, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.State != bourse.StateStopping {
			return false, nil, nil
		}
		m.State = bourse.StateStopped
		releaseRunning(m)
		return true, []bourse.Event{{Type: bourse.EventStop, State: m.State, Source: bourse.SourceWorker}}, nil
	})
	return err
}

// Destroy destroys a machine, and returns once the machine is completely removed from the host. It refuses to destroy a
// running machine unless act.Force is set.
func (ms *Machines) Destroy(ctx context.Context, id bourse.MachineID, act fabric.MachineAction) (fabric.ActReply, error) {
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

func mayDestroy(m *bourse.Machine, act fabric.MachineAction) error {
	err := mayCall(m, bourse.CallDestroy, act.Nonce)
	if act.Force && bourse.CodeOf(err) == bourse.CodeFailedPrecondition {
		return nil
	}
	return err
}

// beginDestroy records that a machine will be destroyed, and begins the run that destroys it. If
// the machine is already being destroyed, the new run waits for the earlier one. It returns
// not_found if the machine is gone.
func (ms *Machines) beginDestroy(ctx context.Context, id bourse.MachineID, source bourse.Source, by string, may func(*bourse.Machine) error) (*fsm.Handle[machineResult], error) {
	return ms.begin(ctx, ms.defs.destroy, machineRequest{Machine: id}, state.InTx(func(tx *store.Tx) error {
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

// Discard starts destroying a machine that is no longer needed, for example because its order was canceled. It returns
// once the intent is recorded, without waiting until the machine is destroyed.
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

// killStep kills a machine's program, and waits until its exit is recorded.
func (ms *Machines) killStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if mayHaveTask(&m) {
		if err := ms.end(ctx, &m, "SIGKILL", 0); err != nil {
			return fsm.Retry(fmt.Errorf("kill machine %s: %w", m.ID, err))
		}
	}
	return fsm.Done()
}

// removeStep removes a machine from the host and then releases its resources. The
// machine's record remains readable for some time.
func (ms *Machines) removeStep(ctx context.Context, r *machineRun) fsm.Outcome {
	m, err := ms.state.Machine(ctx, r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	if err := ms.removeFromHost(ctx, &m); err != nil {
		return fsm.Retry(fmt.Errorf("remove machine %s: %w", m.ID, err))
	}
	ms.images.Drop(m.ID)
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State == bourse.StateDestroyed {
				return false, nil, nil
			}
			if err := ms.volumes.Detach(tx, m); err != nil {
				return false, nil, err
			}
			if err := ms.tasks.MachineDestroyed(tx, m); err != nil {
				return false, nil, err
			}
			m.State, m.Takes, m.Devices, m.Lease, m.Next = bourse.StateDestroyed, nil, nil, nil, nil
			m.Boot.PID, m.Boot.Port = 0, 0
			m.Config.Files = nil // files are large and may be secret
			return true, []bourse.Event{{Type: bourse.EventDestroy, State: m.State, Source: bourse.SourceWorker}}, nil
		})
		return err
	}))
}
