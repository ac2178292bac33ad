package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Claim fills an order for a task, or returns a refusal. For a warm task, one durable transaction takes the order's
// resources and records the task. Claim then sends the payload to a warm machine, and returns the result without
// waiting for the disk again. If the daemon dies before the result is durable, the task is recorded as lost. It never
// runs twice.
//
// The call is canceled when its last caller leaves, or when the order is canceled.
func (t *Tasks) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	call, work := t.calls.enter(ctx, c.Order.ID)
	stay := context.AfterFunc(ctx, func() { t.calls.leave(call) })
	defer stay()
	if work == nil {
		return join(ctx, call)
	}
	defer call.cancel(nil)
	if c.Order.Warm() {
		call.fill, call.refusal, call.err = t.runWarm(work, call, &c.Order)
	} else {
		call.fill, call.refusal, call.err = t.runCold(work, c)
	}
	call.refusal = t.host.FromThisWorker(call.refusal)
	if call.saved == nil {
		t.calls.forget(call)
	} else {
		t.calls.settle(call)
	}
	close(call.done)
	return call.fill, call.refusal, call.err
}

// join waits for a call that another claim for the same order has begun.
func join(ctx context.Context, call *call) (*bourse.Fill, *bourse.Refusal, error) {
	select {
	case <-call.done:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if call.fill == nil {
		return nil, call.refusal, call.err
	}
	fill := *call.fill
	fill.Repeated = true
	return &fill, nil, nil
}

// runWarm executes a claim for a warm task. It sets call.saved if it has submitted a record whose commit must be
// awaited.
func (t *Tasks) runWarm(ctx context.Context, call *call, order *bourse.Order) (*bourse.Fill, *bourse.Refusal, error) {
	began := time.Now()
	v, m, err := t.takeSlot(ctx, order)
	switch {
	case ctx.Err() != nil && m == nil: // the order was canceled before anything was recorded
		return nil, t.host.Refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case err != nil: // this call has recorded nothing; findAnswer finds an earlier call's result even if the disk is full
		return t.host.Answer(err)
	case v.refusal != nil:
		return nil, v.refusal, nil
	case v.result != nil:
		return repeatAnswer(v.result)
	}
	defer t.warm.release(m)
	result := bourse.TaskResult{
		Order: order.ID, Name: order.Task.Name, Worker: t.host.Worker, Region: t.host.Region, Machine: m.id, StartedAt: began.UTC(),
		Sum: order.TaskSum(),
	}
	begun := result // a copy, because the transaction may still use it after ctx is done
	call.begun = recordOf(order, begun)
	err = t.state.Store.Update(ctx, func(tx *store.Tx) error { return t.recordBegin(tx, order, call.begun) })
	_, declined := errors.AsType[admit.NotFilledError](err)
	switch {
	case !declined && ctx.Err() != nil: // the transaction may still succeed
		t.recordBroken(m, 0, endedEarlyError{context.Cause(ctx)}, &result)
		t.end(call, result)
		return &bourse.Fill{Task: &result}, nil, nil
	case err != nil:
		fill, refusal, err := t.host.Answer(err)
		if fill != nil {
			return repeatAnswer(fill.Task)
		}
		return nil, refusal, err
	}
	claimed := time.Since(began)
	if order.Task.Output != nil {
		order.Task.Output(nil)
	}
	if err := t.send(ctx, m, order.Task, &result); err != nil {
		t.warm.changed(m.id)
		t.save(call, func(tx *store.Tx) error { return tx.DeleteTask(order.ID) })
		if err := call.saved.Wait(ctx); err != nil { // until the task's record is gone, a crash would cause the task to be recorded as lost
			return nil, nil, err
		}
		return nil, t.host.Refusal(bourse.RefusedUnavailable, "machine "+string(m.id)+" does not accept calls: "+err.Error()), nil
	}
	result.Took = time.Since(began)
	t.end(call, result)
	return &bourse.Fill{Task: &result, Claimed: claimed, Started: result.Took - claimed}, nil, nil
}

// takeSlot takes a place on a warm machine for the order. If that is not possible, for example because no place is
// free, takeSlot checks whether the order was filled before. If it finds a place, this check is left to the transaction
// that records the task.
func (t *Tasks) takeSlot(ctx context.Context, order *bourse.Order) (answer, *warmMachine, error) {
	for {
		v, err := t.newAnswer(order)
		if err == nil && v.refusal != nil {
			v, err = t.findAnswer(ctx, order)
		}
		if err != nil || v.refusal != nil || v.result != nil {
			return v, nil, err
		}
		m, moved := t.warm.take(v.warm)
		switch {
		case m != nil:
			return v, m, nil
		case ctx.Err() != nil:
			return v, nil, context.Cause(ctx)
		case !moved: // other calls took the free places first
			v, err = t.answerFull(order, v)
			return v, nil, err
		}
	}
}

// answerFull returns the answer to an order when no place is free: the order's result if the order was filled here
// before, and otherwise a refusal.
func (t *Tasks) answerFull(order *bourse.Order, seen answer) (answer, error) {
	v, err := t.earlierResult(order)
	if err == nil && v.result == nil && v.refusal == nil {
		v.refusal = errNoSlot(seen.places.Resource)
	}
	return v, err
}

// repeatAnswer answers a claim whose order was filled by an earlier call.
func repeatAnswer(result *bourse.TaskResult) (*bourse.Fill, *bourse.Refusal, error) {
	if result.End == "" { // cannot happen: recovery has recorded the tasks of earlier daemons as lost, and this daemon's tasks have a call
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "task %s is in progress, but has no call", result.Order)
	}
	return &bourse.Fill{Task: result, Repeated: true}, nil, nil
}

// recordOf returns the order record of a call that is about to begin.
func recordOf(order *bourse.Order, begun bourse.TaskResult) store.OrderRecord {
	return store.OrderRecord{
		ID: order.ID, At: begun.StartedAt, Task: &store.TaskRecord{App: order.App.Name, AppID: order.App.ID, Takes: admit.Countables(order.Config.Requirements), Result: begun},
	}
}

// recordBegin records a call and the resources that it takes. The error is an [admit.NotFilledError] if the order is
// refused or was filled here before.
func (t *Tasks) recordBegin(tx *store.Tx, order *bourse.Order, begun store.OrderRecord) error {
	now := time.Now()
	refusal, err := t.host.CheckConditions(tx, order, nil)
	if takes := begun.Task.Takes; err == nil && refusal == nil && len(takes) > 0 {
		var committed bourse.Amounts
		committed, err = tx.CommittedAt(now)
		refusal = t.host.Fits(committed, takes)
	}
	if err != nil {
		return err
	}
	if refusal == nil {
		err := tx.RecordTask(begun)
		if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			return err
		}
	}
	fill, past, err := admit.History(tx, order, now)
	if past != nil {
		refusal, err = t.host.CheckConditions(tx, order, past)
	}
	if err != nil {
		return err
	}
	return admit.NotFilledError{Decision: admit.Decision{Fill: fill, Refusal: refusal}}
}

// end submits the record of a task's outcome to the store. It does not wait until the record is
// durable.
func (t *Tasks) end(call *call, result bourse.TaskResult) {
	at := time.Now().UTC()
	t.state.Counts.TaskEnded(result.End)
	t.counts.add(&result)
	t.save(call, func(tx *store.Tx) error {
		_, err := tx.RecordTaskEnd(call.begun.ID, result, at)
		return err
	})
}

func (t *Tasks) save(call *call, write func(*store.Tx) error) {
	call.write, call.saved = write, t.state.Store.SubmitRelaxed(write)
}
