package main

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/worker"
)

// workerView is the view as a worker uses it.
type workerView struct {
	*view.View
	self    bourse.WorkerID
	changes *view.Watcher // of what the worker listens to
}

var _ worker.View = workerView{}

func newWorkerView(v *view.View, self bourse.WorkerID) workerView {
	return workerView{v, self, v.Watch(view.TableCancelled, view.TableApps)}
}

// Publish writes u as rows, in one transaction.
func (v workerView) Publish(ctx context.Context, u worker.Update) error {
	rows := make([]view.Row, 0, len(u.Machines)+len(u.Gone)+len(u.Apps)+1)
	if u.Facts != nil {
		rows = append(rows, view.WorkerRow(u.Facts, u.Leaving))
	}
	for i := range u.Machines {
		rows = append(rows, view.MachineRow(&u.Machines[i]))
	}
	for _, id := range u.Gone {
		rows = append(rows, view.Gone(view.TableMachines, string(id)))
	}
	for _, app := range u.Apps {
		rows = append(rows, view.AppRow(app))
	}
	_, err := v.View.Publish(ctx, rows...)
	return err
}

// Machines lists the ids that the view has of this worker.
func (v workerView) Machines(ctx context.Context) ([]bourse.MachineID, error) {
	list, err := v.View.Machines(ctx, view.Filter{Worker: v.self})
	ids := make([]bourse.MachineID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids, err
}

// Cancelled lists the orders that this worker must not fill.
func (v workerView) Cancelled(ctx context.Context) ([]bourse.OrderID, error) {
	return v.View.Cancelled(ctx, v.self)
}

// Changed implements worker.View.
func (v workerView) Changed() <-chan struct{} { return v.changes.C }
