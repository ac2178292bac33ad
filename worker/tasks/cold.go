package tasks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
)

// A cold task is a machine that exists for one payload. It is recorded, started and
// watched like any other machine, and continues when the daemon dies. Its payload is
// stored in the order's record until the task ends. Its answer is the program's stdout,
// which is recorded in the transaction that records the exit.

// coldRecord returns the order record for a cold task whose machine is about to be recorded. If the machine has an
// image, the task's timeout begins only when the machine has started, because the image may have to be pulled first.
func (t *Tasks) coldRecord(order *bourse.Order, m *bourse.Machine) store.OrderRecord {
	cold := &store.ColdTask{Payload: order.Task.Payload, Until: m.CreatedAt.Add(time.Duration(order.Task.Timeout))}
	if order.Config.ImageKind() == bourse.RegistryImage {
		cold.Until, cold.Timeout = m.CreatedAt.Add(order.Deadline()), order.Task.Timeout
	}
	return store.OrderRecord{ID: order.ID, Machine: m.ID, At: m.CreatedAt, Task: &store.TaskRecord{
		App: m.App, AppID: m.AppID,
		Result: bourse.TaskResult{
			Order: order.ID, Worker: t.host.Worker, Region: t.host.Region, Machine: m.ID, StartedAt: m.CreatedAt, Sum: order.TaskSum(),
		},
		Cold: cold,
	}}
}

// runCold executes a claim for a cold task.
func (t *Tasks) runCold(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	began := time.Now()
	err := t.host.Precheck(t.state.Store, &c.Order)
	var m bourse.Machine
	var started func(context.Context) error
	if err == nil {
		m, started, err = t.machines.Begin(ctx, c, func(tx *store.Tx, m *bourse.Machine) error {
			return tx.RecordTask(t.coldRecord(&c.Order, m))
		})
	}
	_, declined := errors.AsType[admit.NotFilledError](err)
	switch {
	case err != nil && !declined && ctx.Err() != nil: // the transaction may still succeed
		err := t.cancel(context.WithoutCancel(ctx), c.Order.ID)
		return nil, t.host.Refusal(bourse.RefusedCanceled, "the order was canceled"), err
	case err != nil:
		fill, refusal, err := t.host.Answer(err)
		if fill == nil {
			return nil, refusal, err
		}
		fill, refusal, err = t.answerOf(ctx, fill.Task.Machine, c.Order.ID)
		return repeated(fill), refusal, err
	}
	claimed := time.Since(began)
	if failure := started(ctx); failure != nil && ctx.Err() == nil {
		rec, err := t.orderRecord(ctx, c.Order.ID)
		if err != nil {
			return nil, nil, err
		}
		if rec.Task == nil { // the record was removed because the machine could not be started
			return nil, t.machines.StartRefusal(ctx, &c.Order, m.ID, failure), nil
		}
	}
	finish := t.streamCold(ctx, &m, c.Order.Task.Output)
	fill, refusal, err := t.answerOf(ctx, m.ID, c.Order.ID)
	finish(fill)
	if fill != nil {
		fill.Claimed, fill.Started = claimed, time.Since(began)-claimed
	}
	return fill, refusal, err
}

// answerOf waits until a cold task ends, like awaitCold. If the task's machine could not be started, it returns a
// refusal.
func (t *Tasks) answerOf(ctx context.Context, machine bourse.MachineID, id bourse.OrderID) (*bourse.Fill, *bourse.Refusal, error) {
	fill, err := t.awaitCold(ctx, machine, id)
	if errors.Is(err, errNotStarted) {
		return nil, t.host.Refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	return fill, nil, err
}

// errNotStarted is returned if a task's machine could not be started. The task then has
// no record and may run on another worker.
var errNotStarted = errors.New("the task's machine could not be started")

func repeated(fill *bourse.Fill) *bourse.Fill {
	if fill != nil {
		fill.Repeated = true
	}
	return fill
}

func (t *Tasks) orderRecord(ctx context.Context, id bourse.OrderID) (store.OrderRecord, error) {
	var rec store.OrderRecord
	if err := t.state.Store.Sync(ctx); err != nil {
		return rec, err
	}
	err := t.state.Store.View(func(tx *store.Tx) (err error) { rec, _, err = tx.Order(id); return err })
	return rec, err
}

// awaitCold waits until a cold task ends. If the task's timeout expires, it ends the task early. It also does so if ctx
// is done, unless the daemon is stopping. It returns errNotStarted if the task no longer has a record.
func (t *Tasks) awaitCold(ctx context.Context, machine bourse.MachineID, id bourse.OrderID) (*bourse.Fill, error) {
	lasting := context.WithoutCancel(ctx)
	for {
		change := t.state.Machines.Next(machine)
		rec, err := t.orderRecord(lasting, id)
		switch {
		case err != nil:
			return nil, err
		case rec.Task == nil:
			return nil, errNotStarted
		case !rec.Task.Open():
			return &bourse.Fill{Task: &rec.Task.Result}, nil
		}
		over := time.NewTimer(time.Until(rec.Task.Cold.Until))
		select {
		case <-change:
		case <-over.C:
			limit := cmp.Or(time.Duration(rec.Task.Cold.Timeout), rec.Task.Cold.Until.Sub(rec.Task.Result.StartedAt))
			err = t.endCold(lasting, id, endedEarly(rec.Task, bourse.TaskTimeout, fmt.Sprintf("it was stopped after its timeout of %s", limit)))
		case <-ctx.Done():
			if t.state.Context().Err() != nil { // the daemon is stopping, and the task continues
				err = context.Cause(ctx)
				break
			}
			err = t.endCold(lasting, id, endedEarly(rec.Task, bourse.TaskCanceled, "it was canceled: "+context.Cause(ctx).Error()))
		}
		over.Stop()
		if err != nil {
			return nil, err
		}
	}
}

// endedEarly returns the result of a task that the worker ended early. why is the error in the result.
func endedEarly(rec *store.TaskRecord, end bourse.TaskEnd, why string) bourse.TaskResult {
	r := rec.Result
	r.End, r.ExitCode, r.Error, r.Took = end, -1, why, time.Since(r.StartedAt)
	return r
}

// endCold records a task's outcome, and then starts destroying the task's machine. If the daemon dies in between,
// recovery destroys the machine.
func (t *Tasks) endCold(ctx context.Context, id bourse.OrderID, result bourse.TaskResult) error {
	err := t.state.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.RecordTaskEnd(id, result, time.Now().UTC())
		return err
	})
	if err != nil {
		return err
	}
	t.state.Counts.TaskEnded(result.End)
	return t.machines.Discard(ctx, result.Machine)
}

// resumeCold continues to wait for the cold tasks that earlier daemons have begun, so
// that their timeouts still apply.
func (t *Tasks) resumeCold() error {
	return t.state.Store.View(func(tx *store.Tx) error {
		for o, err := range tx.OpenTasks() {
			if err != nil {
				return err
			}
			t.state.Go(func(life context.Context) {
				if _, err := t.awaitCold(life, o.Machine, o.ID); err != nil && !errors.Is(err, errNotStarted) && life.Err() == nil {
					t.state.Log.Warn("wait for task exit failed", "order", o.ID, "machine", o.Machine, "err", err)
				}
			})
		}
		return nil
	})
}
