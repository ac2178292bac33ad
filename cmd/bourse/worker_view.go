package main

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
	"github.com/bourse-dev/bourse/worker/publish"
)

// workerView is the view as a worker uses it.
type workerView struct {
	*replica
	self    bourse.WorkerID
	changes *view.Watcher // of what the worker listens to
}

var _ publish.View = workerView{}

func newWorkerView(r *replica, self bourse.WorkerID) workerView {
	return workerView{r, self, r.Watch(wire.TableCancelled, wire.TableApps)}
}

// Publish writes u as rows, in one transaction.
func (v workerView) Publish(ctx context.Context, u publish.Update) error {
	rows := make([]wire.Row, 0, len(u.Machines)+len(u.Gone)+len(u.Volumes)+len(u.GoneVolumes)+len(u.Images)+len(u.GoneImages)+1)
	if u.Facts != nil {
		rows = append(rows, inventory.WorkerRow(u.Facts, u.Leaving))
	}
	for i := range u.Machines {
		rows = append(rows, inventory.MachineRow(&u.Machines[i]))
	}
	for _, id := range u.Gone {
		rows = append(rows, wire.Gone(wire.TableMachines, string(id)))
	}
	for i := range u.Volumes {
		rows = append(rows, inventory.VolumeRow(&u.Volumes[i]))
	}
	for _, id := range u.GoneVolumes {
		rows = append(rows, wire.Gone(wire.TableVolumes, string(id)))
	}
	for i := range u.Images {
		rows = append(rows, inventory.ImageRow(&u.Images[i]))
	}
	for _, digest := range u.GoneImages {
		rows = append(rows, wire.Gone(wire.TableImages, digest))
	}
	if len(u.Apps) > 0 { // a broker's words, not ours
		proofs := make([][]byte, len(u.Apps))
		for i := range u.Apps {
			proofs[i] = u.Apps[i].Proof
		}
		if err := v.Believe(ctx, proofs...); err != nil {
			return err
		}
	}
	_, err := v.View.Publish(ctx, rows...)
	return err
}

// Machines lists the ids that the view has of this worker.
func (v workerView) Machines(ctx context.Context) ([]bourse.MachineID, error) {
	list, err := v.View.Machines(ctx, inventory.Filter{Worker: v.self})
	ids := make([]bourse.MachineID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids, err
}

// Volumes lists the volumes that the view has of this worker.
func (v workerView) Volumes(ctx context.Context) ([]bourse.VolumeID, error) {
	list, err := v.View.Volumes(ctx, inventory.VolumeFilter{Worker: v.self})
	ids := make([]bourse.VolumeID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids, err
}

// Images lists the digests of the images that the view has of this worker.
func (v workerView) Images(ctx context.Context) ([]string, error) {
	list, err := v.View.Images(ctx, inventory.ImageFilter{Worker: v.self})
	digests := make([]string, len(list))
	for i := range list {
		digests[i] = list[i].Ref.Digest
	}
	return digests, err
}

// Cancelled lists the orders that this worker must not fill.
func (v workerView) Cancelled(ctx context.Context) ([]bourse.OrderID, error) {
	return v.View.Cancelled(ctx, v.self)
}

// Changed implements publish.View.
func (v workerView) Changed() <-chan struct{} { return v.changes.C }
