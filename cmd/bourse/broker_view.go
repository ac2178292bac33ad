package main

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/market"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/gossip"
	"github.com/bourse-dev/bourse/view/query"
)

// witnesses is how many other members have what a broker writes before it
// says so, for at most witnessTime: then it outlives the broker's host.
const (
	witnesses   = 2
	witnessTime = time.Second
)

// brokerView is the view as a broker and its exchange use it.
type brokerView struct{ *replica }

var (
	_ broker.View  = brokerView{}
	_ market.Voids = brokerView{}
)

// Synced implements broker.View.
func (v brokerView) Synced() bool { return v.replicator.InSync() }

// Machines implements broker.View.
func (v brokerView) Machines(ctx context.Context, app bourse.AppName) ([]broker.Listed, error) {
	return v.listed(ctx, view.Filter{App: app})
}

// MachinesNamed implements broker.View.
func (v brokerView) MachinesNamed(ctx context.Context, app bourse.AppName, name string) ([]broker.Listed, error) {
	return v.listed(ctx, view.Filter{App: app, Name: name})
}

func (v brokerView) listed(ctx context.Context, filter view.Filter) ([]broker.Listed, error) {
	list, err := v.View.Machines(ctx, filter)
	out := make([]broker.Listed, len(list))
	for i := range list {
		out[i] = listed(&list[i])
	}
	return out, err
}

// Machine implements broker.View.
func (v brokerView) Machine(ctx context.Context, id bourse.MachineID) (broker.Listed, bool, error) {
	m, ok, err := v.View.Machine(ctx, id)
	return listed(&m), ok, err
}

func listed(m *view.Listed) broker.Listed {
	return broker.Listed{Machine: m.Machine, HostStatus: machinesapi.HostStatus(m.HostStatus), HeardAt: m.HeardAt}
}

// Volumes implements broker.View.
func (v brokerView) Volumes(ctx context.Context, app bourse.AppName) ([]broker.ListedVolume, error) {
	list, err := v.View.Volumes(ctx, view.VolumeFilter{App: app})
	out := make([]broker.ListedVolume, len(list))
	for i, x := range list {
		out[i] = broker.ListedVolume{Volume: x.Volume, HostStatus: machinesapi.HostStatus(x.HostStatus), HeardAt: x.HeardAt}
	}
	return out, err
}

// CountMachines implements broker.View.
func (v brokerView) CountMachines(ctx context.Context, app bourse.AppName) (map[bourse.AppRef]int, error) {
	counts, err := v.View.CountMachines(ctx)
	if app != "" {
		maps.DeleteFunc(counts, func(ref bourse.AppRef, _ int) bool { return ref.Name != app })
	}
	return counts, err
}

// PutApp implements broker.View.
func (v brokerView) PutApp(ctx context.Context, app bourse.App) (bourse.App, error) {
	if err := v.write(ctx, view.AppRow(app)); err != nil {
		return app, err
	}
	merged, ok, err := v.App(ctx, app.Name)
	if err != nil || !ok {
		return app, err
	}
	return merged, nil
}

// Void implements market.Voids.
func (v brokerView) Void(ctx context.Context, order bourse.OrderID, at bourse.WorkerID) error {
	return v.write(ctx, view.CancelledRow(order, at))
}

// Voided implements market.Voids.
func (v brokerView) Voided(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error) {
	return v.CancelledAt(ctx, order)
}

// write puts a row into the view and into those of a few others. That they do
// not answer is no error: it is in our file, and spreads when they do.
func (v brokerView) write(ctx context.Context, row view.Row) error {
	at, err := v.Publish(ctx, row)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, witnessTime)
	defer cancel()
	if err := v.replicator.Spread(ctx, at, witnesses); err != nil {
		v.log.Warn("a change is in fewer views than it should be", "table", row.Table, "err", err)
	}
	return nil
}

// queries answers people's questions about the view.
type queries struct {
	*query.Engine
	replicator *gossip.Replicator
}

var _ broker.Queries = queries{}

// Health compares what every member says of its view.
func (q queries) Health(ctx context.Context) (machinesapi.ViewHealth, error) {
	members := q.replicator.Health(ctx)
	out := make([]machinesapi.MemberHealth, len(members))
	for i := range members {
		out[i] = healthOf(&members[i])
	}
	health := machinesapi.CompareViews(out, time.Now())
	for i := range health.Members {
		health.Members[i].Heads = nil // they were for the comparison: a list for each of many members
	}
	return health, nil
}

func healthOf(m *gossip.MemberHealth) machinesapi.MemberHealth {
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
