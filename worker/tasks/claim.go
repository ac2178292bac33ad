package tasks

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Claim fills an order for a task, or returns the refusal. For a place on a warm
// machine it takes the order's resources and records the task in one durable
// transaction, sends the payload, and returns the result. The result does not wait for
// the disk again: if the daemon dies at that moment the task reads as lost, but it
// never runs twice.
//
// When the last caller leaves, or the order is canceled, the call is ended.
func (t *Tasks) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	call, work := t.calls.enter(ctx, c.Order.ID)
	stay := context.AfterFunc(ctx, func() { t.calls.leave(call) })
	defer stay()
	if work == nil {
		return join(ctx, call)
	}
	defer call.cut(nil)
	if c.Order.Warm() {
		call.fill, call.refusal, call.err = t.runWarm(work, call, &c.Order)
	} else {
		call.fill, call.refusal, call.err = t.runCold(work, c)
	}
	call.refusal = t.host.By(call.refusal)
	if call.saved == nil {
		t.calls.forget(call)
	} else {
		t.calls.settle(call)
	}
	close(call.done)
	return call.fill, call.refusal, call.err
}

// join waits for the call of another claim of the same order.
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
	fill.Again = true
	return &fill, nil, nil
}

// runWarm executes a claim of a place on a warm machine. If it leaves call.saved unset,
// nothing remains to be recorded.
func (t *Tasks) runWarm(ctx context.Context, call *call, order *bourse.Order) (*bourse.Fill, *bourse.Refusal, error) {
	began := time.Now()
	v, m, err := t.placeFor(ctx, order)
	switch {
	case ctx.Err() != nil && m == nil: // canceled before anything was recorded
		return nil, t.host.Refusal(bourse.RefusedCanceled, "the order was canceled"), nil
	case err != nil: // nothing is recorded: look finds the outcome of an earlier call before it waits for the disk
		return t.host.Answer(err)
	case v.refusal != nil:
		return nil, v.refusal, nil
	case v.result != nil:
		return answerAgain(v.result)
	}
	defer t.warm.release(m)
	result := bourse.TaskResult{
		Order: order.ID, Name: order.Task.Name, Worker: t.host.Worker, Region: t.host.Region, Machine: m.id, StartedAt: began.UTC(),
		Sum: order.TaskSum(),
	}
	begun := result // a copy, since the transaction may outlive ctx
	call.begun = recordOf(order, begun)
	err = t.state.Store.Update(ctx, func(tx *store.Tx) error { return t.recordBegin(tx, order, call.begun) })
	_, declined := errors.AsType[admit.Declined](err)
	switch {
	case !declined && ctx.Err() != nil: // it may still be recorded
		t.broken(m, 0, errCut{context.Cause(ctx)}, &result)
		t.end(call, result)
		return &bourse.Fill{Task: &result}, nil, nil
	case err != nil:
		fill, refusal, err := t.host.Answer(err)
		if fill != nil {
			return answerAgain(fill.Task)
		}
		return nil, refusal, err
	}
	claimed := time.Since(began)
	if order.Task.Output != nil {
		order.Task.Output(nil)
	}
	if err := t.send(ctx, m, order.Task, &result); err != nil {
		t.warm.changed(m.id)
		t.save(call, func(tx *store.Tx) error { return tx.TaskUndone(order.ID) })
		if err := call.saved.Wait(ctx); err != nil { // the task may still be recorded as lost
			return nil, nil, err
		}
		return nil, t.host.Refusal(bourse.RefusedUnavailable, "machine "+string(m.id)+" does not listen for its task: "+err.Error()), nil
	}
	result.Took = time.Since(began)
	t.end(call, result)
	return &bourse.Fill{Task: &result, Claimed: claimed, Started: result.Took - claimed}, nil, nil
}

// placeFor takes a place for the order. Whether the order was filled here before is
// checked only if there is no place; otherwise the transaction that records the task
// checks it.
func (t *Tasks) placeFor(ctx context.Context, order *bourse.Order) (view, *warmMachine, error) {
	for {
		v, err := t.lookNew(order)
		if err == nil && v.refusal != nil {
			v, err = t.look(ctx, order)
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
		case !moved: // other calls were faster
			v, err = t.outrun(order, v)
			return v, nil, err
		}
	}
}

// outrun returns the answer to an order whose place was taken by another call: its
// result, if it was filled here before.
func (t *Tasks) outrun(order *bourse.Order, seen view) (view, error) {
	v, err := t.before(order)
	if err == nil && v.result == nil && v.refusal == nil {
		v.refusal = noPlace(seen.places.Resource)
	}
	return v, err
}

// answerAgain answers a claim of an order that was filled here before this call.
func answerAgain(result *bourse.TaskResult) (*bourse.Fill, *bourse.Refusal, error) {
	if result.End == "" { // recovery has ended older tasks, and each later one has a call
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "task %s is in progress without a call", result.Order)
	}
	return &bourse.Fill{Task: result, Again: true}, nil, nil
}

// recordOf returns the record of a call that begins.
func recordOf(order *bourse.Order, begun bourse.TaskResult) store.OrderRecord {
	return store.OrderRecord{
		ID: order.ID, At: begun.StartedAt, Task: &store.TaskRecord{App: order.App.Name, AppID: order.App.ID, Takes: admit.Countables(order.Config.Requirements), Result: begun},
	}
}

// recordBegin records the intent of a call: its resources, and that it begins. Its error
// is [admit.Declined] if the order was filled here before, or is refused.
func (t *Tasks) recordBegin(tx *store.Tx, order *bourse.Order, begun store.OrderRecord) error {
	now := time.Now()
	refusal, err := t.host.Barred(tx, order, nil)
	if takes := begun.Task.Takes; err == nil && refusal == nil && len(takes) > 0 {
		var committed bourse.Amounts
		committed, err = tx.CommittedAt(now)
		refusal = t.host.Fits(committed, takes)
	}
	if err != nil {
		return err
	}
	if refusal == nil {
		err := tx.TaskBegun(begun)
		if bourse.CodeOf(err) != bourse.CodeAlreadyExists {
			return err
		}
	}
	fill, past, err := admit.Past(tx, order, now)
	if past != nil {
		refusal, err = t.host.Barred(tx, order, past)
	}
	if err != nil {
		return err
	}
	return admit.Declined{Decision: admit.Decision{Fill: fill, Refusal: refusal}}
}

// end submits the record of a task's end, without waiting for it.
func (t *Tasks) end(call *call, result bourse.TaskResult) {
	at := time.Now().UTC()
	t.state.Counts.TaskEnded(result.End)
	t.tally.add(&result)
	t.save(call, func(tx *store.Tx) error {
		_, err := tx.TaskEnded(call.begun.ID, result, at)
		return err
	})
}

func (t *Tasks) save(call *call, write func(*store.Tx) error) {
	call.write, call.saved = write, t.state.Store.SubmitRelaxed(write)
}
