package machines

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// launch starts the task of a machine that is recorded as starting. The driver starts at most one task per boot number.
// If launch runs again after a crash, it therefore finds the task that was already started and only completes the
// record.
func (ms *Machines) launch(ctx context.Context, r *machineRun, failed onFailure) fsm.Outcome {
	m, err := ms.starting(r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	begin := time.Now()
	d, err := ms.drivers.of(m.Config.ImageKind())
	var f Attached
	if err == nil {
		f, err = ms.setUp(ctx, &m) // repeated in this step, because the host may have rebooted since the previous step
	}
	var status driver.Status
	task, version := driver.Task{}, uint64(0)
	var secrets map[string]string
	if err == nil {
		secrets, version, err = ms.secretsOf(ctx, &m)
	}
	if err == nil {
		task = ms.policy.Of(&m, f, secrets)
		task.Env = append(task.Env, ms.keepAliveEnv(&m)...)
		task.Stdin, err = ms.tasks.Payload(&m)
	}
	switch {
	case err != nil:
	case m.Config.ImageKind() == bourse.PollerImage:
		status, err = ms.awaitPoller(ctx, d, r, &m)
	default:
		status, err = d.Start(ctx, task)
	}
	if err != nil {
		return ms.launchFailed(ctx, r, &m, err, failed)
	}
	ms.watch(d, status.ID, errTextLost)
	now := time.Now().UTC()
	ms.state.Counts.Started(now.Sub(begin))
	return fsm.Done(state.InTx(func(tx *store.Tx) error { return recordStart(tx, status, version, now) }))
}

// recordStart records that a machine's task is running. The event contains the start time that the driver reports, so
// recording the start again produces the same event. secrets is the version of the app's secrets that the program
// received; the machine's next start requires at least that version.
func recordStart(tx *store.Tx, s driver.Status, secrets uint64, now time.Time) error {
	_, err := state.ChangeMachineAt(tx, s.ID.Machine, now, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Boot.Number != s.ID.Boot || m.Boot.Exit != nil {
			return false, nil, nil
		}
		m.Secrets = max(m.Secrets, secrets)
		if m.State != bourse.StateStarting { // a stop was requested; the next run carries it out
			m.Boot.PID = s.PID
			return true, nil, nil
		}
		if m.Config.AutoDestroy { // the machine may belong to a task
			if err := tx.RecordTaskStart(m.Order, s.StartedAt.UTC()); err != nil {
				return false, nil, err
			}
		}
		return true, []bourse.Event{started(m, s)}, nil
	})
	return err
}

// started changes m's state to started, and returns the event.
func started(m *bourse.Machine, s driver.Status) bourse.Event {
	m.Boot.PID, m.State = s.PID, bourse.StateStarted
	return bourse.Event{Type: bourse.EventStart, State: m.State, Source: bourse.SourceWorker, At: s.StartedAt.UTC()}
}

// recordBoot changes m's state to starting, and assigns its boot number and port.
func recordBoot(m *bourse.Machine, port int) {
	m.State = bourse.StateStarting
	m.Boot.Number++
	m.Boot.PID, m.Boot.Port = 0, port
	m.Boot.Requested, m.Boot.Exit = false, nil
}

// onFailure is called when a launch gives up. It removes everything that the launch has created on the host, and then
// records the failure.
type onFailure func(ctx context.Context, r *machineRun, m *bourse.Machine, cause error) fsm.Outcome

// starting returns the machine that a run is about to start. It returns
// CodeFailedPrecondition if the machine's state is no longer starting.
func (ms *Machines) starting(id bourse.MachineID) (bourse.Machine, error) {
	var m bourse.Machine
	err := ms.state.Store.View(func(tx *store.Tx) error {
		var err error
		m, err = state.ReadMachine(tx, id, state.RecentEvents-1)
		return err
	})
	if err == nil && m.State != bourse.StateStarting { // stopped or destroyed before this step
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s", m.ID, m.State)
	}
	return m, err
}

// attach prepares the host for a machine's program: it ensures that the recorded image is on the host, and creates the
// machine's network and mounts.
func (ms *Machines) attach(ctx context.Context, r *machineRun, failed onFailure) fsm.Outcome {
	ms.images.Drop(r.Request.Machine) // the image is recorded by now, or the machine is gone
	m, err := ms.starting(r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	err = ms.images.Ensure(ctx, &m)
	if err == nil { // nothing uses the mounts yet; mounting again applies the new size of a volume that grew while it was in use
		err = ms.volumes.Unmount(ctx, &m)
	}
	if err == nil {
		_, err = ms.setUp(ctx, &m)
	}
	if err != nil {
		return ms.launchFailed(ctx, r, &m, err, failed)
	}
	return fsm.Done()
}

// launchFailed decides whether to retry after a failed attempt to start m. It gives up immediately if another attempt
// would also fail, and otherwise after launchAttempts attempts. However, if the error is temporary and m needs
// attachments or secrets, it retries until the order's deadline or, if the start has no order, until the machine is
// stopped or destroyed.
func (ms *Machines) launchFailed(ctx context.Context, r *machineRun, m *bourse.Machine, cause error, failed onFailure) fsm.Outcome {
	late := r.Attempt+1 >= launchAttempts
	switch bourse.CodeOf(cause) {
	case bourse.CodeInvalid, bourse.CodeNotFound, bourse.CodeInsufficient:
		late = true // another attempt would also fail
	case bourse.CodeUnavailable, bourse.CodeTimeout, bourse.CodeCanceled:
		if !isHostProgram(m) || m.Secrets > 0 {
			late = pastDeadline(r)
		}
	default:
	}
	if !late {
		return fsm.Retry(cause)
	}
	return failed(ctx, r, m, cause)
}

// pastDeadline reports whether a run's order has passed its deadline. A run without an
// order has no deadline.
func pastDeadline(r *machineRun) bool {
	return !r.Request.Until.IsZero() && !time.Now().Before(r.Request.Until)
}

// createAttach and createLaunch are the steps that start an order's machine for the
// first time.
func (ms *Machines) createAttach(ctx context.Context, r *machineRun) fsm.Outcome {
	return ms.attach(ctx, r, ms.destroyUnfilled)
}

func (ms *Machines) createLaunch(ctx context.Context, r *machineRun) fsm.Outcome {
	return ms.launch(ctx, r, ms.destroyUnfilled)
}

// destroyUnfilled destroys an order's machine because it cannot be started. The claim is then answered with a refusal
// that contains the reason. If some of the machine's objects cannot be removed from the host now, a separate run
// destroys the machine later, and the machine keeps its resources until then.
func (ms *Machines) destroyUnfilled(ctx context.Context, _ *machineRun, m *bourse.Machine, cause error) fsm.Outcome {
	nothing := isHostProgram(m) && m.Config.ImageKind() != bourse.PollerImage // a poller may have claimed the machine just now
	if nothing || ms.removeFromHost(ctx, m) == nil {
		return fsm.Abort(cause, state.InTx(func(tx *store.Tx) error { return ms.recordDestroyed(tx, m, cause, bourse.StateDestroyed) }))
	}
	// The new run is queued behind this one. If the daemon dies in between, only the new
	// run resumes, and it destroys the machine.
	_, err := ms.begin(ctx, ms.defs.destroy, machineRequest{Machine: m.ID}, state.InTx(func(tx *store.Tx) error {
		return ms.recordDestroyed(tx, m, cause, bourse.StateDestroying)
	}))
	if err != nil {
		return fsm.Retry(errors.Join(cause, err))
	}
	return fsm.Abort(cause)
}

// removeFromHost removes a machine's task and attachments from the host.
func (ms *Machines) removeFromHost(ctx context.Context, m *bourse.Machine) error {
	d, err := ms.drivers.of(m.Config.ImageKind())
	if err == nil {
		err = d.Destroy(ctx, m.ID)
	}
	if err != nil { // the program may still use the attachments
		return err
	}
	return ms.removeAll(ctx, m)
}

// recordDestroyed records that a machine could not be started, so its order is not filled. last is the machine's new
// state: destroying or destroyed. If the machine's state has changed in the meantime, recordDestroyed returns
// errChanged, because this run is then no longer responsible for the machine.
func (ms *Machines) recordDestroyed(tx *store.Tx, m *bourse.Machine, cause error, last bourse.State) error {
	if rec, ok, err := tx.Order(m.Order); err != nil {
		return err
	} else if ok && rec.Machine == m.ID {
		rec.Machine = ""
		rec.Decision.Outcome = bourse.OutcomeRefused
		if rec.Task != nil {
			err = tx.DeleteTask(rec.ID)
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
				return false, nil, errChanged
			}
			took, devices := m.Takes, m.Devices
			m.State = next
			if next == bourse.StateDestroyed {
				if err := ms.volumes.Detach(tx, m); err != nil {
					return false, nil, err
				}
			}
			events := failedLaunchEvents(m, cause)
			if last == bourse.StateDestroying { // the program may still be running
				m.Takes, m.Devices = took, devices
			}
			return true, events, nil
		}); err != nil || next == last {
			return err
		}
	}
	return nil
}

// failedLaunchEvents returns the events for a machine that could not be launched. It also releases the resources that
// the machine no longer needs.
func failedLaunchEvents(m *bourse.Machine, cause error) []bourse.Event {
	now := time.Now().UTC()
	m.Boot.PID = 0
	switch m.State {
	case bourse.StateFailed:
		m.Boot.Exit = &bourse.Exit{Code: -1, Error: bourse.MessageOf(cause), At: now}
		releaseRunning(m)
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

// prepareStep marks a machine as stopped, because its order skips the launch. It has nothing else to do: a host process
// needs no preparation and, for other machines, an earlier step has already pulled the image.
func (ms *Machines) prepareStep(_ context.Context, r *machineRun) fsm.Outcome {
	ms.images.Drop(r.Request.Machine)
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := state.ChangeMachine(tx, r.Request.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
			if m.State != bourse.StateCreated {
				return false, nil, nil // the machine was destroyed in the meantime
			}
			m.State = bourse.StateStopped
			return true, []bourse.Event{{Type: bourse.EventPrepare, State: m.State, Source: bourse.SourceWorker}}, nil
		})
		return err
	}))
}

// awaitPoller waits until a poller claims m's task. m must be starting. awaitPoller gives up when the machine is
// stopped or destroyed, or at the order's deadline. If the start has no order, it gives up after
// bourse.DefaultOrderTimeout.
func (ms *Machines) awaitPoller(ctx context.Context, d driver.Driver, r *machineRun, m *bourse.Machine) (driver.Status, error) {
	// The task may still be running on a poller that claimed it before this daemon started.
	if status, err := d.Inspect(ctx, TaskOf(m)); err == nil {
		return status, nil
	}
	until := r.Request.Until
	if until.IsZero() {
		until = time.Now().Add(bourse.DefaultOrderTimeout)
	}
	wanted, stop := ms.contextWhile(ctx, m.ID, until, func(now *bourse.Machine) bool { return now.State == m.State })
	status, err := d.Start(wanted, ms.policy.Of(m, Attached{}, nil))
	cause := context.Cause(wanted)
	stop()
	switch {
	case err == nil, ctx.Err() != nil, cause == nil:
		return status, err
	case errors.Is(cause, errNotNeeded):
		return status, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is no longer wanted", m.ID)
	}
	return status, bourse.Errorf(bourse.CodeInsufficient, "no poller claimed machine %s before the deadline", m.Name)
}
