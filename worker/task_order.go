package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// taskView is what the store and the warm machines say to an order for a place
// on one of them.
type taskView struct {
	refusal   *bourse.Refusal
	result    *bourse.TaskResult // the order is filled here already; without an end: it is under way
	committed bourse.Amounts
	warm      []*warmMachine
	places    bourse.Account // of the task
}

// quoteTask is quote of an order for a place on a warm machine.
func (w *Worker) quoteTask(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	q := bourse.Quote{Worker: w.self.Worker, Region: w.self.Region, Load: w.load.read()}
	if order.Named { // only then can it be filled already, perhaps a moment ago
		if err := w.store.Sync(ctx); err != nil {
			return q, err
		}
	}
	v, err := w.lookAtTask(ctx, order)
	switch {
	case err != nil:
		return q, err
	case v.result != nil:
		q.FilledTask = withoutAnswer(v.result)
		return q, nil
	case v.refusal != nil:
		q.Refusal = v.refusal
		return q, nil
	}
	q.Takes = append(taskTakes(order), bourse.Amount{Resource: v.places.Resource, Amount: 1}).Sorted()
	for _, a := range w.ledger.accounts(v.committed) {
		if q.Takes.Has(a.Resource) {
			q.Accounts = append(q.Accounts, a)
		}
	}
	q.Accounts = append(q.Accounts, v.places)
	return q, nil
}

func withoutAnswer(r *bourse.TaskResult) *bourse.TaskResult {
	if r == nil {
		return nil
	}
	out := *r
	out.Answer = nil
	return &out
}

// taskTakes gives what a call on a warm machine takes from the ledger: the
// countables among its requirements. All else is the machine's.
func taskTakes(order *bourse.Order) bourse.Amounts {
	var takes bourse.Amounts
	for name, r := range order.Config.Requirements {
		if r.Count > 0 {
			takes = append(takes, bourse.Amount{Resource: bourse.Resource(name), Amount: r.Count})
		}
	}
	return takes.Sorted()
}

// lookAtTask tells how the worker stands to the order. What reads as a no is
// read again after all that is on its way into the store: a task that has just
// ended gives its slots back, and a machine that has just started serves.
func (w *Worker) lookAtTask(ctx context.Context, order *bourse.Order) (taskView, error) {
	v, err := w.readTask(order)
	if err != nil || v.refusal == nil || v.refusal.Reason == bourse.RefusedRegion || v.refusal.Reason == bourse.RefusedLabel {
		return v, err
	}
	if err := w.store.Sync(ctx); err != nil {
		return v, err
	}
	return w.readTask(order)
}

// readTask is one look of lookAtTask, at what is durable.
func (w *Worker) readTask(order *bourse.Order) (taskView, error) {
	v, err := w.taskBefore(order)
	if err != nil || v.result != nil || v.refusal != nil {
		return w.vouched(v), err
	}
	return w.newTask(order)
}

// taskBefore tells what has become of the order here until now.
func (w *Worker) taskBefore(order *bourse.Order) (v taskView, err error) {
	err = w.store.View(func(tx *store.Tx) (err error) {
		v.result, v.refusal, err = taskBefore(tx, order.ID, &order.App)
		return err
	})
	return v, err
}

// newTask is lookAtTask for an order that is new here.
func (w *Worker) newTask(order *bourse.Order) (taskView, error) {
	v := taskView{refusal: w.refuseTaskEver(order)}
	if v.refusal != nil {
		return w.vouched(v), nil
	}
	var ids []bourse.MachineID
	err := w.store.View(func(tx *store.Tx) (err error) {
		ids = tx.WarmFor(order.App, order.Task.Name)
		v.committed, err = tx.CommittedAt(time.Now())
		return err
	})
	if err == nil {
		v.warm, err = w.warmFor(ids)
	}
	if err != nil {
		return v, err
	}
	places, busy := w.warm.count(v.warm)
	v.places = bourse.Account{Resource: bourse.TaskResource(order.Task.Name), Total: int64(places), Used: int64(busy)}
	switch {
	case places == 0:
		v.refusal = &bourse.Refusal{
			Reason: bourse.RefusedUnknown, Resource: string(v.places.Resource), Wanted: 1,
			Detail: fmt.Sprintf("no started machine of app %s here serves task %s", order.App.Name, order.Task.Name),
		}
	case busy >= places:
		v.refusal = noPlace(v.places.Resource)
	default:
		v.refusal = w.fits(v.committed, taskTakes(order))
	}
	return w.vouched(v), nil
}

func noPlace(of bourse.Resource) *bourse.Refusal {
	return &bourse.Refusal{
		Reason: bourse.RefusedResource, Resource: string(of), Wanted: 1,
		Detail: fmt.Sprintf("insufficient %s: wanted 1, free 0", of),
	}
}

// vouched names the worker in v's refusal.
func (w *Worker) vouched(v taskView) taskView {
	if v.refusal != nil {
		v.refusal.Worker, v.refusal.Region = w.self.Worker, w.self.Region
	}
	return v
}

// refuseTaskEver gives the reasons that no other task's end would remove.
func (w *Worker) refuseTaskEver(order *bourse.Order) *bourse.Refusal {
	if !named(order.Regions, w.self.Region) {
		return &bourse.Refusal{Reason: bourse.RefusedRegion, Detail: fmt.Sprintf("the worker stands in %s", w.self.Region)}
	}
	return refuseLabels(order.Config.Requirements, w.labels.Load().all)
}

// taskBefore tells what has become of the order here: its task, or that none
// will.
func taskBefore(tx *store.Tx, id bourse.OrderID, app *bourse.App) (*bourse.TaskResult, *bourse.Refusal, error) {
	rec, ok, err := tx.Order(id)
	switch {
	case err != nil || !ok:
		return nil, nil, err
	case foreign(&rec, app):
		return nil, &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: "the order's id is that of another order"}, nil
	case rec.Task != nil:
		return &rec.Task.Result, nil, nil
	case rec.Canceled:
		return nil, &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: "the order was canceled"}, nil
	case rec.Machine != "" || rec.Volume != "" || rec.Held:
		return nil, &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: "the order's id is that of another order"}, nil
	}
	return nil, nil, nil
}
