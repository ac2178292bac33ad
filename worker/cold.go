package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
)

// A cold task is a machine that lives for one payload: it is recorded, started
// and watched as any other, and goes on when the daemon dies. Its payload is in
// the order's record until it has ended; its answer, what it wrote to stdout,
// is recorded in the transaction that records its exit and its destruction.

// coldRecord is the order's record as the machine's is made. The time of an
// image begins when its machine has started: before, it may have to be pulled.
func (w *Worker) coldRecord(order *bourse.Order, m *bourse.Machine) store.OrderRecord {
	cold := &store.ColdTask{Payload: order.Task.Payload, Until: m.CreatedAt.Add(time.Duration(order.Task.Timeout))}
	if bourse.InRegistry(order.Config.Image) {
		cold.Until, cold.Timeout = m.CreatedAt.Add(order.Deadline()), order.Task.Timeout
	}
	return store.OrderRecord{ID: order.ID, Machine: m.ID, At: m.CreatedAt, Task: &store.TaskRecord{
		App: m.App, AppID: m.AppID,
		Result: bourse.TaskResult{
			Order: order.ID, Worker: w.self.Worker, Region: w.self.Region, Machine: m.ID, StartedAt: m.CreatedAt,
		},
		Cold: cold,
	}}
}

// runCold is the work of claimTask for an order with a machine of its own.
func (w *Worker) runCold(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	began := time.Now()
	before, refusal, err := w.coldBefore(&c.Order)
	if before != nil {
		fill, refusal, err := w.answerOf(ctx, before.Machine, c.Order.ID)
		return again(fill), refusal, err
	}
	if err != nil || refusal != nil {
		return nil, refusal, err
	}
	m, run, err := w.record(ctx, c)
	if r, ok := errors.AsType[refused](err); ok {
		return nil, &r.Refusal, nil
	}
	switch {
	case err != nil && ctx.Err() != nil: // it may still be recorded
		_, err := w.cancel(context.WithoutCancel(ctx), c.Order.ID)
		return nil, w.refusal(bourse.RefusedCanceled, "the order was canceled"), err
	case bourse.CodeOf(err) == bourse.CodeUnavailable:
		return nil, w.refusal(bourse.RefusedUnavailable, "the worker cannot write its store: "+err.Error()), nil
	case err != nil:
		return nil, nil, err
	}
	w.machineChanged(m.ID)
	claimed := time.Since(began)
	if _, failure := w.appliedMachine(ctx, m.ID, run); failure != nil && ctx.Err() == nil {
		rec, err := w.orderRecord(ctx, c.Order.ID)
		if err != nil {
			return nil, nil, err
		}
		if rec.Task == nil { // nothing is left of it
			return nil, w.unfillable(&c.Order, failure), nil
		}
	}
	finish := w.streamCold(ctx, &m, c.Order.Task.Output)
	fill, refusal, err := w.answerOf(ctx, m.ID, c.Order.ID)
	finish(fill)
	if fill != nil {
		fill.Claimed, fill.Started = claimed, time.Since(began)-claimed
	}
	return fill, refusal, err
}

// answerOf is awaitCold for who claims the task.
func (w *Worker) answerOf(ctx context.Context, machine bourse.MachineID, id bourse.OrderID) (*bourse.Fill, *bourse.Refusal, error) {
	fill, err := w.awaitCold(ctx, machine, id)
	if errors.Is(err, errNeverBegun) {
		return nil, w.refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	return fill, nil, err
}

// errNeverBegun tells of a task whose machine could not be started after all:
// it has no record any more, and may be run elsewhere.
var errNeverBegun = errors.New("the task's machine could not be started")

func again(fill *bourse.Fill) *bourse.Fill {
	if fill != nil {
		fill.Again = true
	}
	return fill
}

// coldBefore tells what has become of the order here, or why it is refused.
func (w *Worker) coldBefore(order *bourse.Order) (result *bourse.TaskResult, refusal *bourse.Refusal, err error) {
	err = w.store.View(func(tx *store.Tx) error {
		result, refusal, err = taskBefore(tx, order.ID, &order.App)
		if err != nil || result != nil || refusal != nil {
			return err
		}
		refusal, err = w.refuse(tx, order, w.ledger.running(&order.Config))
		return err
	})
	return result, w.vouched(taskView{refusal: refusal}).refusal, err
}

func (w *Worker) orderRecord(ctx context.Context, id bourse.OrderID) (store.OrderRecord, error) {
	var rec store.OrderRecord
	if err := w.store.Sync(ctx); err != nil {
		return rec, err
	}
	err := w.store.View(func(tx *store.Tx) (err error) { rec, _, err = tx.Order(id); return err })
	return rec, err
}

// awaitCold waits for the end of a cold task, and sees to it that it ends when
// its time is over or ctx ends. errNeverBegun: there is nothing to wait for.
func (w *Worker) awaitCold(ctx context.Context, machine bourse.MachineID, id bourse.OrderID) (*bourse.Fill, error) {
	lasting := context.WithoutCancel(ctx)
	for {
		change := w.news.of(machine)
		rec, err := w.orderRecord(lasting, id)
		switch {
		case err != nil:
			return nil, err
		case rec.Task == nil:
			return nil, errNeverBegun
		case !rec.Task.Open():
			return &bourse.Fill{Task: &rec.Task.Result}, nil
		}
		over := time.NewTimer(time.Until(rec.Task.Cold.Until))
		select {
		case <-change:
		case <-over.C:
			limit := cmp.Or(time.Duration(rec.Task.Cold.Timeout), rec.Task.Cold.Until.Sub(rec.Task.Result.StartedAt))
			err = w.endCold(lasting, id, coldCut(rec.Task, bourse.TaskTimeout, fmt.Sprintf("it was ended after its timeout of %s", limit)))
		case <-ctx.Done():
			if w.life.Err() != nil { // the daemon ends, and the task goes on without it
				err = context.Cause(ctx)
				break
			}
			err = w.endCold(lasting, id, coldCut(rec.Task, bourse.TaskCanceled, "it was canceled: "+context.Cause(ctx).Error()))
		}
		over.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// coldCut is the result of a task that does not come to its own end.
func coldCut(rec *store.TaskRecord, end bourse.TaskEnd, why string) bourse.TaskResult {
	r := rec.Result
	r.End, r.ExitCode, r.Error, r.Took = end, -1, why, time.Since(r.StartedAt)
	return r
}

// endCold records a task's end before its machine's, and has that destroyed. A
// crash in between leaves an ended task with a living machine: recovery looks
// for those.
func (w *Worker) endCold(ctx context.Context, id bourse.OrderID, result bourse.TaskResult) error {
	err := w.store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.TaskEnded(id, result, time.Now().UTC())
		return err
	})
	if err != nil {
		return err
	}
	w.counts.task(result.End)
	return w.destroyCanceled(ctx, result.Machine)
}

// coldPayload gives what m's program reads on stdin: nothing, unless the
// machine is a task's.
func (w *Worker) coldPayload(m *bourse.Machine) (payload []byte, err error) {
	if !m.Config.AutoDestroy { // all of tasks are
		return nil, nil
	}
	err = w.store.View(func(tx *store.Tx) error {
		rec, _, err := tx.Order(m.Order)
		if err == nil && rec.Task != nil && rec.Task.Cold != nil {
			payload = rec.Task.Cold.Payload
		}
		return err
	})
	return payload, err
}

// coldEnd gives what is recorded of a task beside the exit of its machine m:
// nothing, unless m is a task's.
func (w *Worker) coldEnd(ctx context.Context, m *bourse.Machine, exit bourse.Exit) (func(*store.Tx) error, error) {
	nothing := func(*store.Tx) error { return nil }
	if !m.Config.AutoDestroy {
		return nothing, nil
	}
	rec, err := w.orderRecord(ctx, m.Order)
	if err != nil || rec.Task == nil || !rec.Task.Open() {
		return nothing, err
	}
	result := coldCut(rec.Task, bourse.TaskAnswered, "")
	result.ExitCode = exit.Code
	switch {
	case exit.Error != "":
		result.End, result.Error = bourse.TaskLost, "its program was lost: "+exit.Error
	case exit.Signal != 0:
		result.End, result.Error = bourse.TaskBroken, fmt.Sprintf("its program was ended by signal %d", exit.Signal)
	case exit.Code != 0:
		result.End, result.Error = bourse.TaskFailed, fmt.Sprintf("its program ended with exit code %d", exit.Code)
	}
	if exit.Error == "" {
		if err := w.readStdout(ctx, m, &result); err != nil {
			return nothing, err
		}
	}
	return func(tx *store.Tx) error {
		ended, err := tx.TaskEnded(m.Order, result, time.Now().UTC())
		if ended {
			w.counts.task(result.End)
		}
		return err
	}, nil
}

var errTooMuch = errors.New("too much")

// readStdout fills in what m's program has written to stdout, byte for byte.
func (w *Worker) readStdout(ctx context.Context, m *bourse.Machine, out *bourse.TaskResult) error {
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		return err
	}
	var answer []byte
	err = d.Logs(ctx, m.ID, driver.LogQuery{}, func(l driver.LogLine) error {
		answer = append(answer, stdoutOf(l)...)
		if len(answer) > bourse.MaxAnswer {
			return errTooMuch
		}
		return nil
	})
	switch {
	case errors.Is(err, errTooMuch):
		out.End, out.Error = bourse.TaskBroken, fmt.Sprintf("its answer has more than %d bytes", bourse.MaxAnswer)
		return nil
	case bourse.CodeOf(err) == bourse.CodeNotFound: // destroyed in the same moment
		out.End, out.ExitCode, out.Error = bourse.TaskLost, -1, "what it wrote is gone with its machine"
		return nil
	}
	out.Answer = answer
	return err
}

// coldGone ends the task of a machine that is gone without an end of its own.
func (w *Worker) coldGone(tx *store.Tx, m *bourse.Machine) error {
	if !m.Config.AutoDestroy {
		return nil
	}
	rec, _, err := tx.Order(m.Order)
	if err != nil || rec.Task == nil || !rec.Task.Open() {
		return err
	}
	_, err = tx.TaskEnded(m.Order, coldCut(rec.Task, bourse.TaskCanceled, "its machine was destroyed"), time.Now().UTC())
	return err
}

// resumeCold goes on to wait for the cold tasks that an earlier daemon has
// begun: their time is limited still.
func (w *Worker) resumeCold() error {
	return w.store.View(func(tx *store.Tx) error {
		for o, err := range tx.OpenTasks() {
			if err != nil {
				return err
			}
			w.watches.Go(func() {
				if _, err := w.awaitCold(w.life, o.Machine, o.ID); err != nil && !errors.Is(err, errNeverBegun) && w.life.Err() == nil {
					w.log.Warn("wait for the end of a task", "order", o.ID, "machine", o.Machine, "err", err)
				}
			})
		}
		return nil
	})
}
