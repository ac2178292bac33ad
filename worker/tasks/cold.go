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

// A cold task is a machine that lives for one payload: it is recorded, started
// and watched as any other, and goes on when the daemon dies. Its payload is in
// the order's record until it has ended; its answer, what it wrote to stdout,
// is recorded in the transaction that records its exit and its destruction.

// coldRecord is the order's record as the machine's is made. The time of an
// image begins when its machine has started: before, it may have to be pulled.
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

// runCold is the work of Claim for an order with a machine of its own.
func (t *Tasks) runCold(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	began := time.Now()
	err := t.host.Precheck(t.state.Store, &c.Order)
	var m bourse.Machine
	var started func(context.Context) error
	if err == nil {
		m, started, err = t.machines.Begin(ctx, c, func(tx *store.Tx, m *bourse.Machine) error {
			return tx.TaskBegun(t.coldRecord(&c.Order, m))
		})
	}
	_, declined := errors.AsType[admit.Declined](err)
	switch {
	case err != nil && !declined && ctx.Err() != nil: // it may still be recorded
		err := t.cancel(context.WithoutCancel(ctx), c.Order.ID)
		return nil, t.host.Refusal(bourse.RefusedCanceled, "the order was canceled"), err
	case err != nil:
		fill, refusal, err := t.host.Answer(err)
		if fill == nil {
			return nil, refusal, err
		}
		fill, refusal, err = t.answerOf(ctx, fill.Task.Machine, c.Order.ID)
		return again(fill), refusal, err
	}
	claimed := time.Since(began)
	if failure := started(ctx); failure != nil && ctx.Err() == nil {
		rec, err := t.orderRecord(ctx, c.Order.ID)
		if err != nil {
			return nil, nil, err
		}
		if rec.Task == nil { // nothing is left of it
			return nil, t.machines.Unfillable(ctx, &c.Order, m.ID, failure), nil
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

// answerOf is awaitCold for who claims the task.
func (t *Tasks) answerOf(ctx context.Context, machine bourse.MachineID, id bourse.OrderID) (*bourse.Fill, *bourse.Refusal, error) {
	fill, err := t.awaitCold(ctx, machine, id)
	if errors.Is(err, errNeverBegun) {
		return nil, t.host.Refusal(bourse.RefusedDriver, "the order's machine failed to start here"), nil
	}
	return fill, nil, err
}

// errNeverBegun is the error of a task whose machine could not be started after all:
// it has no record any more, and may be run elsewhere.
var errNeverBegun = errors.New("the task's machine could not be started")

func again(fill *bourse.Fill) *bourse.Fill {
	if fill != nil {
		fill.Again = true
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

// awaitCold waits for the end of a cold task, and sees to it that it ends when
// its time is over or ctx ends. errNeverBegun: there is nothing to wait for.
func (t *Tasks) awaitCold(ctx context.Context, machine bourse.MachineID, id bourse.OrderID) (*bourse.Fill, error) {
	lasting := context.WithoutCancel(ctx)
	for {
		change := t.state.Machines.Next(machine)
		rec, err := t.orderRecord(lasting, id)
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
			err = t.endCold(lasting, id, coldCut(rec.Task, bourse.TaskTimeout, fmt.Sprintf("it was ended after its timeout of %s", limit)))
		case <-ctx.Done():
			if t.state.Life().Err() != nil { // the daemon ends, and the task goes on without it
				err = context.Cause(ctx)
				break
			}
			err = t.endCold(lasting, id, coldCut(rec.Task, bourse.TaskCanceled, "it was canceled: "+context.Cause(ctx).Error()))
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
func (t *Tasks) endCold(ctx context.Context, id bourse.OrderID, result bourse.TaskResult) error {
	err := t.state.Store.Update(ctx, func(tx *store.Tx) error {
		_, err := tx.TaskEnded(id, result, time.Now().UTC())
		return err
	})
	if err != nil {
		return err
	}
	t.state.Counts.TaskEnded(result.End)
	return t.machines.Discard(ctx, result.Machine)
}

// resumeCold goes on to wait for the cold tasks that an earlier daemon has
// begun: their time is limited still.
func (t *Tasks) resumeCold() error {
	return t.state.Store.View(func(tx *store.Tx) error {
		for o, err := range tx.OpenTasks() {
			if err != nil {
				return err
			}
			t.state.Go(func(life context.Context) {
				if _, err := t.awaitCold(life, o.Machine, o.ID); err != nil && !errors.Is(err, errNeverBegun) && life.Err() == nil {
					t.state.Log.Warn("wait for the end of a task", "order", o.ID, "machine", o.Machine, "err", err)
				}
			})
		}
		return nil
	})
}
