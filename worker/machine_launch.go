package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// launch starts the task of a machine that is recorded as starting. The
// driver's start is idempotent by boot number, so after a crash it finds the
// task that was started and only the record is made up for.
func (w *Worker) launch(ctx context.Context, r *machineRun, failed giveUp) fsm.Outcome {
	m, err := w.starting(r.Request.Machine)
	if err != nil {
		return fsm.Abort(err)
	}
	begin := time.Now()
	d, err := w.driverOf(m.Config.Image)
	var f fit
	if err == nil {
		f, err = w.fitOut(ctx, &m) // again: the host may have been started anew since
	}
	var status driver.Status
	task := driver.Task{}
	if err == nil {
		task = w.task(&m, f)
		task.Stdin, err = w.coldPayload(&m)
	}
	switch {
	case err != nil:
	case isPull(m.Config.Image):
		status, err = w.handOver(ctx, d, r, &m)
	default:
		status, err = d.Start(ctx, task)
	}
	if err != nil {
		return w.notLaunched(ctx, r, &m, err, failed)
	}
	w.watch(d, status.ID, lost)
	now := time.Now().UTC()
	w.counts.started(now.Sub(begin))
	return fsm.Done(inTx(func(tx *store.Tx) error { return recordStart(tx, status, now) }))
}

// recordStart writes that a task runs. The event bears the driver's time, so
// it is the same however often it is told.
func recordStart(tx *store.Tx, s driver.Status, now time.Time) error {
	_, err := changeMachineAt(tx, s.ID.Machine, now, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		if m.Boot.Number != s.ID.Boot || m.Boot.Exit != nil {
			return false, nil, nil
		}
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

// started makes m one that runs, and gives the event of it.
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
