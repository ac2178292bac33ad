package tasks

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
)

// answer is the worker's answer to an order for a warm task. It depends on the store and on the warm machines.
type answer struct {
	refusal   *bourse.Refusal
	result    *bourse.TaskResult // the task, if the order is already filled here; if End is empty, it is still in progress
	committed bourse.Amounts
	warm      []*warmMachine
	places    bourse.Account // total and used places for the task on all of its warm machines
}

// Quote answers an order for a warm task. Orders for cold tasks are quoted by
// [admit.Host.Quote], like those for machines.
func (t *Tasks) Quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	q, err := t.host.NewQuote(ctx, t.state.Store, order)
	if err != nil {
		return q, err
	}
	v, err := t.findAnswer(ctx, order)
	switch {
	case err != nil:
		return q, err
	case v.result != nil:
		task := *v.result
		task.Answer = nil
		q.FilledTask = &task
		return q, nil
	case v.refusal != nil:
		q.Refusal = t.host.FromThisWorker(v.refusal)
		return q, nil
	}
	q.Takes = append(admit.Countables(order.Config.Requirements), bourse.Amount{Resource: v.places.Resource, Amount: 1}).Sorted()
	for _, a := range t.host.Ledger.Accounts(v.committed) {
		if q.Takes.Has(a.Resource) {
			q.Accounts = append(q.Accounts, a)
		}
	}
	q.Accounts = append(q.Accounts, v.places)
	return q, nil
}

// findAnswer returns the worker's answer to an order. If the answer is a refusal that does not concern the region or
// the labels, findAnswer waits until everything submitted to the store is durable, and then tries again: tasks that
// have just finished may have released resources, and machines that have just started may accept tasks.
func (t *Tasks) findAnswer(ctx context.Context, order *bourse.Order) (answer, error) {
	v, err := t.read(order)
	if err != nil || v.refusal == nil || v.refusal.Reason == bourse.RefusedRegion || v.refusal.Reason == bourse.RefusedLabel {
		return v, err
	}
	if err := t.state.Store.Sync(ctx); err != nil {
		return v, err
	}
	return t.read(order)
}

// read is like findAnswer, but does not wait for the store.
func (t *Tasks) read(order *bourse.Order) (answer, error) {
	v, err := t.earlierResult(order)
	if err != nil || v.result != nil || v.refusal != nil {
		return v, err
	}
	return t.newAnswer(order)
}

// earlierResult returns an answer that does not depend on the warm machines. It contains the result if the order was
// filled here before, or a refusal if the order cannot be filled anymore. Otherwise, it is empty.
func (t *Tasks) earlierResult(order *bourse.Order) (v answer, err error) {
	err = t.state.Store.View(func(tx *store.Tx) error {
		fill, past, err := admit.History(tx, order, time.Now())
		if err != nil {
			return err
		}
		if fill != nil {
			v.result = fill.Task
			return nil
		}
		v.refusal, err = t.host.CheckConditions(tx, order, past)
		return err
	})
	return v, err
}

// newAnswer returns the answer to an order that was not filled here before.
func (t *Tasks) newAnswer(order *bourse.Order) (answer, error) {
	v := answer{refusal: t.host.UnsupportedTask(order)}
	if v.refusal != nil {
		return v, nil
	}
	var ids []bourse.MachineID
	err := t.state.Store.View(func(tx *store.Tx) (err error) {
		ids = tx.WarmFor(order.App, order.Task.Name)
		v.committed, err = tx.CommittedAt(time.Now())
		return err
	})
	if err == nil {
		v.warm, err = t.warmFor(ids)
	}
	if err != nil {
		return v, err
	}
	places, busy := t.warm.count(v.warm)
	v.places = bourse.Account{Resource: bourse.TaskResource(order.Task.Name), Total: int64(places), Used: int64(busy)}
	switch {
	case places == 0:
		v.refusal = &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: string(v.places.Resource), Wanted: 1,
			Detail: fmt.Sprintf("no running machine of app %s on this worker serves task %s", order.App.Name, order.Task.Name),
		}
	case busy >= places:
		v.refusal = errNoSlot(v.places.Resource)
	default:
		v.refusal = t.host.Fits(v.committed, admit.Countables(order.Config.Requirements))
	}
	return v, nil
}

func errNoSlot(of bourse.Resource) *bourse.Refusal {
	return &bourse.Refusal{
		Reason: bourse.RefusedResource, Resource: string(of), Wanted: 1,
		Detail: fmt.Sprintf("insufficient %s: wanted 1, free 0", of),
	}
}
