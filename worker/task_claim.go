package worker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// claimTask fills an order for work, or gives the refusal. For a place on a warm
// machine it takes what the order takes and records the task in one durable
// transaction, sends the payload, and answers with what came of it. The answer
// does not wait for the disk again: a daemon that dies in that moment leaves a
// task that is told as lost, and never one that runs twice.
//
// When the last caller leaves, or the order is canceled, the call is cut.
func (w *Worker) claimTask(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	call, work := w.calls.enter(ctx, c.Order.ID)
	stay := context.AfterFunc(ctx, func() { w.calls.leave(call) })
	defer stay()
	if work == nil {
		return w.joinTask(ctx, call)
	}
	defer call.cut(nil)
	if c.Order.Warm() {
		call.fill, call.refusal, call.err = w.runTask(work, call, &c.Order)
	} else {
		call.fill, call.refusal, call.err = w.runCold(work, c)
	}
	if call.saved == nil {
		w.calls.forget(call)
	} else {
		w.calls.settle(call)
	}
	close(call.done)
	return call.fill, call.refusal, call.err
}

// joinTask waits for the call of another claim of the same order.
func (w *Worker) joinTask(ctx context.Context, call *taskCall) (*bourse.Fill, *bourse.Refusal, error) {
	select {
	case <-call.done:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if call.fill == nil {
		return nil, call.refusal, call.err
	}
	fill := *call.fill
	fill.Again = true
	return &fill, nil, nil
}

// runTask is the work of claimTask. When it leaves call.saved unset nothing is
// to be recorded.
func (w *Worker) runTask(ctx context.Context, call *taskCall, order *bourse.Order) (*bourse.Fill, *bourse.Refusal, error) {
	began := time.Now()
	v, m, err := w.placeFor(ctx, order)
	switch {
	case ctx.Err() != nil && m == nil: // canceled before anything was recorded
		return nil, w.refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case err != nil:
		return nil, nil, err
	case v.refusal != nil:
		return nil, v.refusal, nil
	case v.result != nil:
		return w.taskAgain(v.result)
	}
	defer w.warm.release(m)
	result := bourse.TaskResult{
		Order: order.ID, Name: order.Task.Name, Worker: w.self.Worker, Region: w.self.Region, Machine: m.id, StartedAt: began.UTC(),
	}
	begun := result // of its own: when ctx ends first the transaction is still at work
	call.begun = taskRecord(order, begun)
	err = w.store.Update(ctx, func(tx *store.Tx) error { return w.recordTask(tx, call.begun) })
	if r, ok := errors.AsType[refused](err); ok {
		return nil, w.vouched(taskView{refusal: &r.Refusal}).refusal, nil
	}
	if r, ok := errors.AsType[begunBefore](err); ok {
		return w.taskAgain(r.result)
	}
	switch {
	case ctx.Err() != nil: // it may still be recorded
		w.broken(m, 0, errCut{context.Cause(ctx)}, &result)
		w.endTask(call, result)
		return &bourse.Fill{Task: &result}, nil, nil
	case bourse.CodeOf(err) == bourse.CodeUnavailable: // the disk is full, or worse: nothing was recorded
		return nil, w.refusal(bourse.RefusedUnavailable, "the worker cannot write its store: "+err.Error()), nil
	case err != nil:
		return nil, nil, err
	}
	claimed := time.Since(began)
	if order.Task.Output != nil {
		order.Task.Output(nil)
	}
	if err := w.send(ctx, m, order.Task, &result); err != nil {
		w.warm.changed(m.id)
		w.saveTask(call, func(tx *store.Tx) error { return tx.TaskUndone(order.ID) })
		return nil, w.refusal(bourse.RefusedUnavailable, "machine "+string(m.id)+" does not listen for its task: "+err.Error()), nil
	}
	result.Took = time.Since(began)
	w.endTask(call, result)
	return &bourse.Fill{Task: &result, Claimed: claimed, Started: result.Took - claimed}, nil, nil
}

// placeFor takes a place for the order, unless the view says otherwise. Whether
// the order was filled here before is asked only when there is no place: else
// the transaction that records the task asks.
func (w *Worker) placeFor(ctx context.Context, order *bourse.Order) (taskView, *warmMachine, error) {
	for {
		v, err := w.newTask(order)
		if err == nil && v.refusal != nil {
			v, err = w.lookAtTask(ctx, order)
		}
		if err != nil || v.refusal != nil || v.result != nil {
			return v, nil, err
		}
		m, moved := w.warm.take(v.warm)
		switch {
		case m != nil:
			return v, m, nil
		case ctx.Err() != nil:
			return v, nil, context.Cause(ctx)
		case !moved: // other calls were faster
			v, err = w.outrun(order, v)
			return v, nil, err
		}
	}
}

// outrun tells what there is for an order when a place that the view had seen is
// taken: its result, if it was filled here before.
func (w *Worker) outrun(order *bourse.Order, seen taskView) (taskView, error) {
	v, err := w.taskBefore(order)
	if err == nil && v.result == nil && v.refusal == nil {
		v.refusal = noPlace(seen.places.Resource)
	}
	return w.vouched(v), err
}

// taskAgain answers a claim of an order that was filled here before this call.
func (w *Worker) taskAgain(result *bourse.TaskResult) (*bourse.Fill, *bourse.Refusal, error) {
	if result.End == "" { // recovery has ended those that it found, and each later one has a call
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "task %s is under way without a call", result.Order)
	}
	return &bourse.Fill{Task: result, Again: true}, nil, nil
}

// taskRecord is what is known of a call that begins.
func taskRecord(order *bourse.Order, begun bourse.TaskResult) store.OrderRecord {
	return store.OrderRecord{
		ID: order.ID, At: begun.StartedAt, Task: &store.TaskRecord{App: order.App.Name, AppID: order.App.ID, Takes: taskTakes(order), Result: begun},
	}
}

// begunBefore says that the order is one that was begun here already.
type begunBefore struct{ result *bourse.TaskResult }

func (b begunBefore) Error() string { return "the task was begun already" }

// recordTask is the intent of a call: what it takes, and that it begins.
func (w *Worker) recordTask(tx *store.Tx, begun store.OrderRecord) error {
	var refusal *bourse.Refusal
	if takes := begun.Task.Takes; len(takes) > 0 {
		committed, err := tx.CommittedAt(time.Now())
		if err != nil {
			return err
		}
		refusal = w.fits(committed, takes)
	}
	if refusal == nil {
		err := tx.TaskBegun(begun)
		if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			return err
		}
	}
	before, never, err := taskBefore(tx, begun.ID, &bourse.App{Name: begun.Task.App, ID: begun.Task.AppID})
	switch {
	case err != nil:
		return err
	case before != nil:
		return begunBefore{before}
	case never == nil && refusal == nil:
		return bourse.Errorf(bourse.CodeInternal, "order %s has a record that says nothing", begun.ID)
	}
	return refused{*cmp.Or(never, refusal)}
}

// endTask has a task's end recorded, without waiting for it.
func (w *Worker) endTask(call *taskCall, result bourse.TaskResult) {
	at := time.Now().UTC()
	w.counts.task(result.End)
	w.saveTask(call, func(tx *store.Tx) error {
		_, err := tx.WarmTaskEnded(call.begun, result, at)
		return err
	})
}

func (w *Worker) saveTask(call *taskCall, write func(*store.Tx) error) {
	call.write, call.saved = write, w.store.SubmitRelaxed(write)
}
