package watch

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

// Others provides information about other workers. It reads other workers' machines from the view,
// and uses the gossip directory to find out which workers are members of the cluster.
type Others struct {
	view       *view.View
	replicator *replication.Replicator
	directory  *gossip.Directory
	moves      *view.Watcher
}

var _ StandbyView = (*Others)(nil)

// NewOthers returns a StandbyView that is based on a view and a gossip directory.
func NewOthers(v *view.View, r *replication.Replicator, d *gossip.Directory) *Others {
	return &Others{v, r, d, v.Watch(wire.TableMachines, wire.TableRemoved, view.TableSites)}
}

// App implements StandbyView.
func (o *Others) App(ctx context.Context, app bourse.AppRef) ([]bourse.Machine, func(bourse.WorkerTag) Host, error) {
	list, err := o.view.Machines(ctx, inventory.Filter{App: app.Name})
	if err != nil {
		return nil, nil, err
	}
	gone, err := o.view.Removed(ctx)
	if err != nil {
		return nil, nil, err
	}
	hosts := map[bourse.WorkerTag]Host{}
	for _, w := range gone {
		if !w.Returned && w.Role == bourse.RoleWorker {
			hosts[w.Tag] = HostRemoved
		}
	}
	var machines []bourse.Machine
	for i := range list {
		if m := &list[i].Machine; m.AppID == app.ID || m.AppID == "" {
			hosts[m.ID.Tag()] = HostLost // replaced below if the worker is a member
			machines = append(machines, *m)
		}
	}
	return machines, func(tag bourse.WorkerTag) Host {
		if _, here := o.directory.ByTag(tag); here {
			return HostReachable
		}
		return hosts[tag]
	}, nil
}

// Complete implements StandbyView.
func (o *Others) Complete() bool {
	select {
	case <-o.replicator.Known():
		return o.replicator.InSync()
	default:
		return false
	}
}

// Changed implements StandbyView.
func (o *Others) Changed() <-chan struct{} { return o.moves.C }
