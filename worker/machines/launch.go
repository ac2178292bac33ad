package machines

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// launch starts the task of a machine that is recorded as starting. The
// driver's start is idempotent by boot number, so after a crash it finds the
// task that was started and only the record is made up for.
func (o *operations) launch(ctx context.Context, r *machineRun, failed giveUp) fsm.Outcome {
	m, err := o.starting(r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	begin := time.Now()
	d, err := o.drivers.of(m.Config.ImageKind())
	var f Attached
	if err == nil {
		f, err = o.fittings.Prepare(ctx, &m) // again: the host may have restarted since
	}
	var status driver.Status
	task, version := driver.Task{}, uint64(0)
	var secrets map[string]string
	if err == nil {
		secrets, version, err = o.secretsOf(ctx, &m)
	}
	if err == nil {
		task = o.policy.Of(&m, f, secrets)
		task.Env = append(task.Env, o.awake(&m)...)
		task.Stdin, err = o.tasks.Payload(&m)
	}
	switch {
	case err != nil:
	case m.Config.ImageKind() == bourse.PollerImage:
		status, err = o.handOver(ctx, d, r, &m)
	default:
		status, err = d.Start(ctx, task)
	}
	if err != nil {
		return o.notLaunched(ctx, r, &m, err, failed)
	}
	o.watch(d, status.ID, lost)
	now := time.Now().UTC()
	o.state.Counts.Started(now.Sub(begin))
	return fsm.Done(state.InTx(func(tx *store.Tx) error { return recordStart(tx, status, version, now) }))
}

// recordStart writes that a task runs. The event bears the driver's time, so
// it is the same however often it is recorded. What it got of its app's secrets
// the next start gets, too.
func recordStart(tx *store.Tx, s driver.Status, secrets uint64, now time.Time) error {
	_, err := state.ChangeMachineAt(tx, s.ID.Machine, now, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Boot.Number != s.ID.Boot || m.Boot.Exit != nil {
			return false, nil, nil
		}
		m.Secrets = max(m.Secrets, secrets)
		if m.State != bourse.StateStarting { // asked to end in the meantime: the next run does that
			m.Boot.PID = s.PID
			return true, nil, nil
		}
		if m.Config.AutoDestroy { // it may be a task's
			if err := tx.TaskStarted(m.Order, s.StartedAt.UTC()); err != nil {
				return false, nil, err
			}
		}
		return true, []bourse.Event{started(m, s)}, nil
	})
	return err
}

// started makes m one that runs, and returns the event of it.
func started(m *bourse.Machine, s driver.Status) bourse.Event {
	m.Boot.PID, m.State = s.PID, bourse.StateStarted
	return bourse.Event{Type: bourse.EventStart, State: m.State, Source: bourse.SourceWorker, At: s.StartedAt.UTC()}
}

// recordBoot writes the intent of a machine's next start.
func recordBoot(m *bourse.Machine, port int) {
	m.State = bourse.StateStarting
	m.Boot.Number++
	m.Boot.PID, m.Boot.Port = 0, port
	m.Boot.Requested, m.Boot.Exit = false, nil
}
