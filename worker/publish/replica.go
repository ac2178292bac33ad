package publish

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Replica implements View for a worker that has its own copy of the cluster's view.
type Replica struct {
	*view.View
	self    bourse.WorkerID
	changes *view.Watcher
}

var _ View = Replica{}

// NewReplica returns the View for the worker self.
func NewReplica(v *view.View, self bourse.WorkerID) Replica {
	return Replica{v, self, v.Watch(wire.TableCanceled, wire.TableApps)}
}

// Publish implements View. It writes rows in one transaction.
func (r Replica) Publish(ctx context.Context, u Update) error {
	if len(u.Apps) > 0 { // apps are merged separately, because brokers sign their rows
		proofs := make([][]byte, len(u.Apps))
		for i := range u.Apps {
			proofs[i] = u.Apps[i].Proof
		}
		if err := r.MergeProofs(ctx, proofs...); err != nil {
			return err
		}
	}
	_, err := r.View.Publish(ctx, u.rows()...)
	return err
}

// rows returns the view's rows for everything in u except apps.
func (u *Update) rows() []wire.Row {
	rows := make([]wire.Row, 0, u.count()+1)
	if u.Facts != nil {
		rows = append(rows, inventory.WorkerRow(u.Facts, u.Leaving))
	}
	for i := range u.Machines {
		rows = append(rows, inventory.MachineRow(&u.Machines[i]))
	}
	for _, id := range u.Gone {
		rows = append(rows, wire.DeletedRow(wire.TableMachines, string(id)))
	}
	for i := range u.Volumes {
		rows = append(rows, inventory.VolumeRow(&u.Volumes[i]))
	}
	for _, id := range u.GoneVolumes {
		rows = append(rows, wire.DeletedRow(wire.TableVolumes, string(id)))
	}
	for i := range u.Images {
		rows = append(rows, inventory.ImageRow(&u.Images[i]))
	}
	for _, digest := range u.GoneImages {
		rows = append(rows, wire.DeletedRow(wire.TableImages, digest))
	}
	return rows
}

// Machines implements View.
func (r Replica) Machines(ctx context.Context) ([]bourse.MachineID, error) {
	list, err := r.View.Machines(ctx, inventory.Filter{Worker: r.self})
	return ids(list, func(l *inventory.Listed) bourse.MachineID { return l.ID }), err
}

// Volumes implements View.
func (r Replica) Volumes(ctx context.Context) ([]bourse.VolumeID, error) {
	list, err := r.View.Volumes(ctx, inventory.VolumeFilter{Worker: r.self})
	return ids(list, func(l *inventory.ListedVolume) bourse.VolumeID { return l.ID }), err
}

// Images implements View.
func (r Replica) Images(ctx context.Context) ([]string, error) {
	list, err := r.View.Images(ctx, inventory.ImageFilter{Worker: r.self})
	return ids(list, func(l *inventory.ListedImage) string { return l.Ref.Digest }), err
}

func ids[T any, ID ~string](list []T, of func(*T) ID) []ID {
	out := make([]ID, len(list))
	for i := range list {
		out[i] = of(&list[i])
	}
	return out
}

// Canceled implements View.
func (r Replica) Canceled(ctx context.Context) ([]bourse.OrderID, error) {
	return r.View.Canceled(ctx, r.self)
}

// Changed implements View.
func (r Replica) Changed() <-chan struct{} { return r.changes.C }
