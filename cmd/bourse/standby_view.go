package main

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
	"github.com/bourse-dev/bourse/worker/watch"
)

// standbyView is what a worker sees of the machines that its spares stand by for.
type standbyView struct {
	*replica
	moves *view.Watcher
}

var _ watch.StandbyView = standbyView{}

func newStandbyView(r *replica) standbyView {
	return standbyView{r, r.Watch(wire.TableMachines, wire.TableForgotten, view.TableSites)}
}

// App asks the view for the machines and the workers that were forgotten, and the
// membership for those that are heard from.
func (v standbyView) App(ctx context.Context, app bourse.AppRef) ([]bourse.Machine, func(bourse.WorkerTag) watch.Host, error) {
	list, err := v.Machines(ctx, inventory.Filter{App: app.Name})
	if err != nil {
		return nil, nil, err
	}
	gone, err := v.Forgotten(ctx)
	if err != nil {
		return nil, nil, err
	}
	hosts := map[bourse.WorkerTag]watch.Host{}
	for _, w := range gone {
		hosts[w.Tag] = watch.HostForgotten
	}
	var machines []bourse.Machine
	for i := range list {
		if m := &list[i].Machine; m.AppID == app.ID || m.AppID == "" {
			hosts[m.ID.Tag()] = watch.HostLost // unless it is heard from
			machines = append(machines, *m)
		}
	}
	return machines, func(tag bourse.WorkerTag) watch.Host {
		if _, here := v.directory.ByTag(tag); here {
			return watch.HostHeard
		}
		return hosts[tag]
	}, nil
}

// Whole implements watch.StandbyView.
func (v standbyView) Whole() bool {
	select {
	case <-v.Known():
		return v.InSync()
	default:
		return false
	}
}

// Moved implements watch.StandbyView.
func (v standbyView) Moved() <-chan struct{} { return v.moves.C }
