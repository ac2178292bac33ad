package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
	apprelease "github.com/bourse-dev/bourse/release" // release is the one of this program
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/query"
	"github.com/bourse-dev/bourse/view/replication"
	"github.com/bourse-dev/bourse/view/wire"
)

// copies is how many other members have what a broker writes before it
// reports it, for at most witnessTime: then it outlives the broker's host.
const (
	copies   = 2
	copyTime = time.Second
)

// brokerView is the view as a broker and its exchange use it.
type brokerView struct{ *replica }

var (
	_ lookup.View        = brokerView{}
	_ tenant.ReleaseView = brokerView{}
	_ market.Voids       = brokerView{}
)

// Synced implements lookup.View.
func (v brokerView) Synced() bool { return v.replicator.InSync() }

// Machines implements lookup.View.
func (v brokerView) Machines(ctx context.Context, app bourse.AppName) ([]lookup.Listed, error) {
	return v.listed(ctx, inventory.Filter{App: app})
}

// MachinesNamed implements lookup.View.
func (v brokerView) MachinesNamed(ctx context.Context, app bourse.AppName, name string) ([]lookup.Listed, error) {
	return v.listed(ctx, inventory.Filter{App: app, Name: name})
}

func (v brokerView) listed(ctx context.Context, filter inventory.Filter) ([]lookup.Listed, error) {
	list, err := view.Ask(ctx, v.View, inventory.Machines(filter))
	out := make([]lookup.Listed, len(list))
	for i := range list {
		out[i] = listed(&list[i])
	}
	return out, err
}

// Machine implements lookup.View.
func (v brokerView) Machine(ctx context.Context, id bourse.MachineID) (lookup.Listed, bool, error) {
	m, err := view.Ask(ctx, v.View, inventory.Machine(id))
	if err != nil || m == nil {
		return lookup.Listed{}, false, err
	}
	return listed(m), true, nil
}

func listed(m *inventory.Listed) lookup.Listed {
	return lookup.Listed{Machine: m.Machine, HostStatus: machinesapi.HostStatus(m.HostStatus), HeardAt: m.HeardAt}
}

// Volumes implements lookup.View.
func (v brokerView) Volumes(ctx context.Context, app bourse.AppName) ([]lookup.ListedVolume, error) {
	list, err := view.Ask(ctx, v.View, inventory.Volumes(inventory.VolumeFilter{App: app}))
	out := make([]lookup.ListedVolume, len(list))
	for i, x := range list {
		out[i] = lookup.ListedVolume{Volume: x.Volume, HostStatus: machinesapi.HostStatus(x.HostStatus), HeardAt: x.HeardAt}
	}
	return out, err
}

// AwayWorkers implements lookup.View.
func (v brokerView) AwayWorkers(ctx context.Context) ([]lookup.AwayWorker, error) {
	list, err := view.Ask(ctx, v.View, inventory.AwayWorkers())
	out := make([]lookup.AwayWorker, len(list))
	for i, w := range list {
		out[i] = lookup.AwayWorker(w)
	}
	return out, err
}

// Forget implements lookup.View.
func (v brokerView) Forget(ctx context.Context, worker bourse.Member) error {
	return v.write(ctx, inventory.ForgottenRow(&worker, time.Now()))
}

// CountMachines implements lookup.View.
func (v brokerView) CountMachines(ctx context.Context, app bourse.AppName) (map[bourse.AppRef]int, error) {
	counts, err := view.Ask(ctx, v.View, inventory.CountMachines())
	if app != "" {
		maps.DeleteFunc(counts, func(ref bourse.AppRef, _ int) bool { return ref.Name != app })
	}
	return counts, err
}

// PutApp implements lookup.View.
func (v brokerView) PutApp(ctx context.Context, app bourse.App) (bourse.App, error) {
	if err := v.write(ctx, inventory.AppRow(app)); err != nil {
		return app, err
	}
	merged, ok, err := v.App(ctx, app.Name)
	if err != nil || !ok {
		return app, err
	}
	return merged, nil
}

// Releases implements tenant.ReleaseView.
func (v brokerView) Releases(ctx context.Context, app string) ([]apprelease.Release, error) {
	return view.Ask(ctx, v.View, inventory.Releases(app))
}

// Deployed implements tenant.ReleaseView.
func (v brokerView) Deployed(ctx context.Context) ([]string, error) {
	return view.Ask(ctx, v.View, inventory.Deployed())
}

// PutRelease implements tenant.ReleaseView.
func (v brokerView) PutRelease(ctx context.Context, r *apprelease.Release) error {
	return v.write(ctx, inventory.ReleaseRow(r))
}

// DropReleases implements tenant.ReleaseView.
func (v brokerView) DropReleases(ctx context.Context, ids []apprelease.ID) error {
	rows := make([]wire.Row, len(ids))
	for i, id := range ids {
		rows[i] = inventory.ReleaseGone(id)
	}
	return v.write(ctx, rows...)
}

// Void implements market.Voids.
func (v brokerView) Void(ctx context.Context, order bourse.OrderID, at bourse.WorkerID) error {
	return v.write(ctx, inventory.CancelledRow(order, at))
}

// Voided implements market.Voids.
func (v brokerView) Voided(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error) {
	return view.Ask(ctx, v.View, inventory.CancelledAt(order))
}

// write puts rows into the view and into those of a few others.
func (v brokerView) write(ctx context.Context, rows ...wire.Row) error {
	spread, err := v.put(ctx, rows...)
	if err == nil {
		spread(ctx)
	}
	return err
}

// put puts rows into the view, and returns what waits until a few others have
// them. That they do not answer is no error: the rows are in our file, and spread
// when they do.
func (v brokerView) put(ctx context.Context, rows ...wire.Row) (spread func(context.Context), err error) {
	at, err := v.Publish(ctx, rows...)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, copyTime)
		defer cancel()
		if err := v.replicator.Spread(ctx, at, copies); err != nil {
			v.log.Warn("a change is in fewer views than it should be", "table", rows[0].Table, "err", err)
		}
	}, nil
}

// queries answers people's questions about the view.
type queries struct {
	*query.Engine
	replicator *replication.Replicator
	sources    *lookup.Sources // of who is missing
}

var _ broker.Queries = queries{}

// Health compares what every member reports of its view.
func (q queries) Health(ctx context.Context) (machinesapi.ViewHealth, error) {
	members := q.replicator.Health(ctx)
	out := make([]machinesapi.MemberHealth, len(members))
	for i := range members {
		out[i] = healthOf(&members[i])
	}
	out = append(out, q.missing(ctx)...)
	health := machinesapi.CompareViews(out, time.Now())
	for i := range health.Members {
		health.Members[i].Heads = nil // they were for the comparison: a list for each of many members
	}
	return health, nil
}

// missing returns the workers that should be members and are not: those that
// left in good order are not missed.
func (q queries) missing(ctx context.Context) []machinesapi.MemberHealth {
	var out []machinesapi.MemberHealth
	_, absent := q.sources.Directory.All()
	for _, w := range q.sources.Away(ctx, absent) {
		if w.Status == machinesapi.WorkerDown {
			out = append(out, machinesapi.MemberHealth{
				ID: w.ID, Role: bourse.RoleWorker, Region: w.Region, DownSince: w.Since, Standing: machinesapi.Standing{State: machinesapi.ViewDown},
			})
		}
	}
	return out
}

func healthOf(m *replication.MemberHealth) machinesapi.MemberHealth {
	out := machinesapi.MemberHealth{ID: m.Member.ID, Role: m.Member.Role, Region: m.Member.Region, Version: m.Release, Error: m.Error}
	h := m.View
	if m.Error != "" || h == nil {
		return out
	}
	out.Reachable, out.Error, out.Epoch, out.Streams = true, h.Error, h.Self.Epoch, len(h.Streams)
	out.Queue = machinesapi.ViewQueue{Transactions: h.Queue.Length, Bytes: int64(h.Queue.Bytes), Dropped: h.Queue.Dropped}
	out.Quarantine.Rows = h.Quarantine.Count
	for _, q := range h.Quarantine.Newest {
		out.Quarantine.Newest = append(out.Quarantine.Newest, machinesapi.QuarantinedRow{
			Site: q.Origin.Site, Epoch: q.Origin.Epoch, Seq: q.Origin.Seq, Table: q.Table, Key: q.Key, Reason: q.Reason, Since: q.Since,
		})
	}
	for _, s := range h.Streams {
		out.Heads = append(out.Heads, machinesapi.ViewHead{Site: s.Site, Epoch: s.Epoch, Seq: s.Seq, At: time.Unix(0, s.At)})
	}
	for _, t := range h.Tables {
		out.Tables = append(out.Tables, machinesapi.ViewTable{Name: t.Table, Rows: int64(t.Rows), Checksum: fmt.Sprintf("%016x", t.Checksum)})
	}
	return out
}
