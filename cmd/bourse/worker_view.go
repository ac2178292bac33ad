package main

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
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
	rows := make([]view.Row, 0, len(u.Machines)+len(u.Gone)+len(u.Volumes)+len(u.GoneVolumes)+len(u.Images)+len(u.GoneImages)+1)
	if u.Facts != nil {
		rows = append(rows, view.WorkerRow(u.Facts, u.Leaving))
	}
	for i := range u.Machines {
		rows = append(rows, view.MachineRow(&u.Machines[i]))
	}
	for _, id := range u.Gone {
		rows = append(rows, view.Gone(view.TableMachines, string(id)))
	}
	for i := range u.Volumes {
		rows = append(rows, view.VolumeRow(&u.Volumes[i]))
	}
	for _, id := range u.GoneVolumes {
		rows = append(rows, view.Gone(view.TableVolumes, string(id)))
	}
	for i := range u.Images {
		rows = append(rows, view.ImageRow(&u.Images[i]))
	}
	for _, digest := range u.GoneImages {
		rows = append(rows, view.Gone(view.TableImages, digest))
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
	list, err := v.View.Machines(ctx, view.Filter{Worker: v.self})
	ids := make([]bourse.MachineID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids, err
}

// Volumes lists the volumes that the view has of this worker.
func (v workerView) Volumes(ctx context.Context) ([]bourse.VolumeID, error) {
	list, err := v.View.Volumes(ctx, view.VolumeFilter{Worker: v.self})
	ids := make([]bourse.VolumeID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return ids, err
}

// Images lists the digests of the images that the view has of this worker.
func (v workerView) Images(ctx context.Context) ([]string, error) {
	list, err := v.View.Images(ctx, view.ImageFilter{Worker: v.self})
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

// names is the view as names of machines are looked up in it.
type names struct{ *view.View }

var _ network.Names = names{}

// Machines gives an app's machines, but for those whose hosts are not heard
// from: who asks for an address wants to connect.
func (n names) Machines(ctx context.Context, app bourse.AppName) ([]bourse.Machine, error) {
	list, err := n.View.Machines(ctx, view.Filter{App: app})
	out := make([]bourse.Machine, 0, len(list))
	for i := range list {
		if list[i].HostStatus != view.HostUnreachable {
			out = append(out, list[i].Machine)
		}
	}
	return out, err
}

// Changed implements worker.View.
func (v workerView) Changed() <-chan struct{} { return v.changes.C }
