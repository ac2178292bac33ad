package worker

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/network/mesh"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

// Mesh connects the worker's private networks with those of other workers. It is implemented by mesh.Mesh.
type Mesh interface {
	// Announcement returns the mesh data that this worker publishes for other workers.
	Announcement() *bourse.Mesh
	// Peers returns the worker's connections to other workers.
	Peers() []bourse.MeshPeer
	// Reaches reports whether packets from this worker are likely to reach another worker's machines.
	Reaches(worker bourse.WorkerID) bool
}

// MeshView implements mesh.View. It reads apps from the worker's own records, and everything else from the view.
type MeshView struct {
	view       *view.View
	replicator *replication.Replicator
	apps       func() ([]bourse.App, error)
	changes    *view.Watcher
}

var _ mesh.View = (*MeshView)(nil)

// NewMeshView returns a MeshView. apps returns the worker's records of all apps.
func NewMeshView(v *view.View, r *replication.Replicator, apps func() ([]bourse.App, error)) *MeshView {
	return &MeshView{v, r, apps, v.Watch(wire.TableMachines, wire.TableWorkers, wire.TableApps, wire.TableWireGuard, wire.TableTokens, view.TableSites)}
}

// Members implements mesh.View.
func (v *MeshView) Members(ctx context.Context, self bourse.WorkerID, networks []string) (mesh.Members, error) {
	laptops, err := v.view.WireGuardPeers(ctx, time.Now())
	if err != nil {
		return mesh.Members{}, err
	}
	networks = slices.Clone(networks)
	for i := range laptops {
		if l := &laptops[i]; l.Worker == self && !slices.Contains(networks, l.Network) {
			networks = append(networks, l.Network)
		}
	}
	if len(networks) == 0 {
		return mesh.Members{}, nil
	}
	apps, err := v.apps()
	if err != nil {
		return mesh.Members{}, err
	}
	var out mesh.Members
	for i := range laptops {
		if l := &laptops[i]; slices.Contains(networks, l.Network) {
			out.Laptops = append(out.Laptops, mesh.Laptop{ID: l.ID, Network: l.Network, Key: l.PublicKey, Entry: l.Worker, CreatedAt: l.CreatedAt, ExpiresAt: l.ExpiresAt})
		}
	}
	var refs []bourse.AppRef
	of := map[bourse.AppRef]string{}
	for i := range apps {
		if name := apps[i].PrivateNetwork(); apps[i].DeletedAt == nil && slices.Contains(networks, name) {
			refs = append(refs, apps[i].Ref())
			of[apps[i].Ref()] = name
		}
	}
	known, err := v.view.MeshWorkers(ctx)
	if err != nil {
		return mesh.Members{}, err
	}
	placed, err := v.view.PrivateMachines(ctx, refs)
	if err != nil {
		return mesh.Members{}, err
	}
	out.Workers = make([]mesh.Worker, len(known))
	for i, w := range known {
		out.Workers[i] = mesh.Worker{ID: w.ID, Tag: w.Tag, Mesh: w.Mesh, Lost: w.HostStatus == machinesapi.HostUnreachable}
	}
	out.Machines = make([]mesh.Machine, len(placed))
	for i, m := range placed {
		out.Machines[i] = mesh.Machine{ID: m.ID, Worker: m.Worker, Network: of[m.App]}
	}
	return out, nil
}

// Whole implements mesh.View.
func (v *MeshView) Whole() bool {
	select {
	case <-v.replicator.Known():
		return v.replicator.InSync()
	default:
		return false
	}
}

// Changed implements mesh.View.
func (v *MeshView) Changed() <-chan struct{} { return v.changes.C }

// Elsewhere returns the app's machines on those other workers that the mesh can reach. If a worker publishes several
// machines for the same order, Elsewhere considers only the one with the lowest ID, as the mesh's plan does.
func (v *MeshView) Elsewhere(ctx context.Context, app *bourse.App, m Mesh) ([]bourse.Machine, error) {
	list, err := v.view.Machines(ctx, inventory.Filter{App: app.Name})
	slices.SortFunc(list, func(a, b inventory.Listed) int { return cmp.Compare(a.Machine.ID, b.Machine.ID) })
	type placement struct {
		worker bourse.WorkerID
		order  bourse.OrderID
	}
	used := map[placement]bool{}
	var out []bourse.Machine
	for i := range list {
		one := &list[i].Machine
		if one.AppID != app.ID || !one.PrivateIP.IsValid() || used[placement{one.Worker, one.Order}] {
			continue
		}
		used[placement{one.Worker, one.Order}] = true
		own := one.Worker.TagRank(one.ID.Tag()) < bourse.TagChoices // a worker must not publish names for others' addresses
		if own && m.Reaches(one.Worker) {
			out = append(out, *one)
		}
	}
	return out, err
}
