package broker

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Quotas are checked against what the view has, and what this broker has placed
// since it looked: they are as exact as the view is fresh, and each broker counts
// for itself what it places meanwhile. Capacity never depends on them.

// usage is what an app has.
type usage struct {
	machines, volumes int
	config            int64

	org int // machines of its organisation
}

// usages remembers what apps have for as long as a look at the view is not worth
// its time.
type usages struct {
	mu sync.Mutex
	of map[bourse.AppRef]*counted
}

type counted struct {
	usage
	until time.Time
}

const (
	countedFor = time.Second
	// countedPart is the part of the time that may be spent on counting.
	countedPart = 50
	maxCounted  = 4096
)

// has returns what an app has. A view that cannot be read has nothing: orders are
// not refused for want of knowledge. One caller counts; meanwhile the others go
// by what was counted before.
func (b *Broker) has(ctx context.Context, app bourse.App) usage {
	began := b.Now()
	c, current := b.usages.find(app.Ref(), began)
	if current {
		return c
	}
	u := b.count(ctx, app)
	now := b.Now()
	b.usages.mu.Lock()
	defer b.usages.mu.Unlock()
	b.usages.of[app.Ref()] = &counted{u, now.Add(max(countedFor, countedPart*now.Sub(began)))}
	return u
}

// find returns what was counted of an app, and reports whether that still counts;
// else the caller is to count again.
func (s *usages) find(ref bourse.AppRef, now time.Time) (usage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[ref]
	switch {
	case c == nil:
		if s.of == nil || len(s.of) >= maxCounted {
			s.of = map[bourse.AppRef]*counted{}
		}
		c = &counted{}
		s.of[ref] = c
	case now.Before(c.until):
		return c.usage, true
	}
	c.until = now.Add(countedFor)
	return c.usage, false
}

func (b *Broker) count(ctx context.Context, app bourse.App) usage {
	var u usage
	rows, err := b.View.Machines(ctx, app.Name)
	if err != nil {
		b.viewFailed(ctx, err)
		return u
	}
	for i := range rows {
		if !app.Owns(rows[i].App, rows[i].AppID, rows[i].CreatedAt) {
			continue
		}
		u.machines++
		u.config += configBytes(&rows[i].Config)
	}
	volumes, _ := b.View.Volumes(ctx, app.Name) // what it cannot say counts as nothing
	u.volumes = len(volumes)
	counts, _ := b.View.CountMachines(ctx, "")
	apps, _ := b.View.Apps(ctx)
	for _, a := range apps {
		if a.Org == app.Org && a.DeletedAt == nil {
			u.org += counts[a.Ref()]
		}
	}
	return u
}

// configBytes returns what a config takes of a quota.
func configBytes(c *bourse.Config) int64 {
	raw, _ := json.Marshal(c) // it came from JSON
	return int64(len(raw))
}

// placed adds what was just placed to what its app has.
func (b *Broker) placed(app bourse.App, more usage) {
	b.usages.mu.Lock()
	defer b.usages.mu.Unlock()
	if c := b.usages.of[app.Ref()]; c != nil {
		c.machines += more.machines
		c.volumes += more.volumes
		c.config += more.config
		c.org += more.machines
	}
}

// mayHaveMachine reports CodeForbidden when a machine of the order would exceed a
// quota. The repetition of an order that has its machine exceeds none.
func (b *Broker) mayHaveMachine(ctx context.Context, order *bourse.Order) error {
	quota, orgs, has := b.Quotas.ofApp(order.App.Name), b.Quotas.ofOrg(order.App.Org), b.has(ctx, order.App)
	var err error
	switch {
	case has.machines >= quota.Machines:
		err = errQuota("app", string(order.App.Name), int64(quota.Machines), "machines")
	case has.org >= orgs.Machines:
		err = errQuota("organisation", order.App.Org, int64(orgs.Machines), "machines")
	case has.config+configBytes(&order.Config) > quota.ConfigBytes:
		err = errQuota("app", string(order.App.Name), quota.ConfigBytes, "bytes of config in all its machines")
	}
	if err != nil && order.Named && b.repeats(ctx, order) {
		return nil
	}
	return err
}

// repeats reports whether a machine is known that the order became.
func (b *Broker) repeats(ctx context.Context, order *bourse.Order) bool {
	for _, m := range b.fresh.of(order.App.Name) {
		if m.Order == order.ID {
			return true
		}
	}
	rows, _ := b.View.Machines(ctx, order.App.Name) // an error: then it is not known
	return slices.ContainsFunc(rows, func(l Listed) bool { return l.Order == order.ID })
}

// mayHaveVolume is mayHaveMachine for a volume.
func (b *Broker) mayHaveVolume(ctx context.Context, app bourse.App) error {
	if quota := b.Quotas.ofApp(app.Name); b.has(ctx, app).volumes >= quota.Volumes {
		return errQuota("app", string(app.Name), int64(quota.Volumes), "volumes")
	}
	return nil
}

// mayHaveApp is mayHaveMachine for an app.
func (b *Broker) mayHaveApp(ctx context.Context, org string) error {
	apps, err := b.View.Apps(ctx)
	if err != nil {
		b.viewFailed(ctx, err)
		return nil
	}
	n := 0
	for _, a := range apps {
		if a.Org == org && a.DeletedAt == nil {
			n++
		}
	}
	if quota := b.Quotas.ofOrg(org); n >= quota.Apps {
		return errQuota("organisation", org, int64(quota.Apps), "apps")
	}
	return nil
}

// mayOrder reports CodeRateLimited when an order would exceed a rate. Only what
// is known without reading the request counts: the path's app, and the token's
// organisation.
func (b *Broker) mayOrder(r *request) error {
	now, app := b.Now(), r.app()
	if app == "" {
		app = DefaultApp
	}
	if limit := b.Quotas.ofApp(app).OrdersPerSecond; !b.rates.Take("app "+string(app), limit, now) {
		return bourse.Errorf(bourse.CodeRateLimited, "quota exceeded: app %s may place %d orders a second", bourse.Quoted(string(app)), limit)
	}
	if org := r.who.Org; org != "" {
		if limit := b.Quotas.ofOrg(org).OrdersPerSecond; !b.rates.Take("org "+org, limit, now) {
			return bourse.Errorf(bourse.CodeRateLimited, "quota exceeded: organisation %s may place %d orders a second", bourse.Quoted(org), limit)
		}
	}
	return nil
}
