package lookup

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/internal/throttle"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Checker checks orders against quotas.
type Checker struct {
	quotas   Quotas
	machines *Machines
	rates    throttle.Rates
	usages   usages
}

// NewChecker makes a checker that has counted nothing yet.
func NewChecker(q Quotas, machines *Machines) *Checker {
	return &Checker{quotas: q, machines: machines}
}

// usage is what an app has.
type usage struct {
	machines, volumes int
	config            int64

	org int // machines of its organization
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
func (c *Checker) has(ctx context.Context, app bourse.App) usage {
	began := c.machines.Now()
	known, current := c.usages.find(app.Ref(), began)
	if current {
		return known
	}
	u := c.count(ctx, app)
	now := c.machines.Now()
	c.usages.mu.Lock()
	defer c.usages.mu.Unlock()
	c.usages.of[app.Ref()] = &counted{u, now.Add(max(countedFor, countedPart*now.Sub(began)))}
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

func (c *Checker) count(ctx context.Context, app bourse.App) usage {
	var u usage
	rows, err := c.machines.View.Machines(ctx, inventory.Filter{App: app.Name})
	if err != nil {
		c.machines.Log.WarnContext(ctx, "read view failed", slog.Any("err", err))
		return u
	}
	for i := range rows {
		if !app.Owns(rows[i].App, rows[i].AppID, rows[i].CreatedAt) {
			continue
		}
		u.machines++
		u.config += configBytes(&rows[i].Config)
	}
	volumes, _ := c.machines.View.Volumes(ctx, inventory.VolumeFilter{App: app.Name}) // what it cannot say counts as nothing
	u.volumes = len(volumes)
	counts, _ := c.machines.View.CountMachines(ctx)
	apps, _ := c.machines.View.Apps(ctx)
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

// PlacedMachine adds a machine that was just placed to what its app has.
func (c *Checker) PlacedMachine(order *bourse.Order) {
	c.placed(order.App, usage{machines: 1, config: configBytes(&order.Config)})
}

// PlacedVolume is PlacedMachine for a volume.
func (c *Checker) PlacedVolume(app bourse.App) { c.placed(app, usage{volumes: 1}) }

func (c *Checker) placed(app bourse.App, more usage) {
	c.usages.mu.Lock()
	defer c.usages.mu.Unlock()
	if known := c.usages.of[app.Ref()]; known != nil {
		known.machines += more.machines
		known.volumes += more.volumes
		known.config += more.config
		known.org += more.machines
	}
}

// MayHaveMachine reports CodeForbidden when a machine of the order would exceed a
// quota. The repetition of an order that has its machine exceeds none.
func (c *Checker) MayHaveMachine(ctx context.Context, order *bourse.Order) error {
	quota, orgs, has := c.quotas.ofApp(order.App.Name), c.quotas.ofOrg(order.App.Org), c.has(ctx, order.App)
	var err error
	switch {
	case has.machines >= quota.Machines:
		err = exceeded("app", string(order.App.Name), int64(quota.Machines), "machines")
	case has.org >= orgs.Machines:
		err = exceeded("organization", order.App.Org, int64(orgs.Machines), "machines")
	case has.config+configBytes(&order.Config) > quota.ConfigBytes:
		err = exceeded("app", string(order.App.Name), quota.ConfigBytes, "bytes of config in all its machines")
	}
	if err != nil && order.Named && c.repeats(ctx, order) {
		return nil
	}
	return err
}

// MayHaveConfig reports CodeForbidden when another config of a machine would exceed
// its app's quota; more is what the app then has more than before.
func (c *Checker) MayHaveConfig(ctx context.Context, app bourse.App, was, config *bourse.Config) (more int64, err error) {
	more = configBytes(config) - configBytes(was)
	if quota := c.quotas.ofApp(app.Name); more > 0 && c.has(ctx, app).config+more > quota.ConfigBytes {
		err = exceeded("app", string(app.Name), quota.ConfigBytes, "bytes of config in all its machines")
	}
	return more, err
}

// GrewConfig adds to what an app has how much a config has grown.
func (c *Checker) GrewConfig(app bourse.App, more int64) { c.placed(app, usage{config: more}) }

// repeats reports whether a machine is known that the order became.
func (c *Checker) repeats(ctx context.Context, order *bourse.Order) bool {
	for _, m := range c.machines.Replied(order.App.Name) {
		if m.Order == order.ID {
			return true
		}
	}
	rows, _ := c.machines.View.Machines(ctx, inventory.Filter{App: order.App.Name}) // an error: then it is not known
	return slices.ContainsFunc(rows, func(l inventory.Listed) bool { return l.Order == order.ID })
}

// MayHaveVolume is MayHaveMachine for a volume.
func (c *Checker) MayHaveVolume(ctx context.Context, app bourse.App) error {
	if quota := c.quotas.ofApp(app.Name); c.has(ctx, app).volumes >= quota.Volumes {
		return exceeded("app", string(app.Name), int64(quota.Volumes), "volumes")
	}
	return nil
}

// MayHaveSecrets reports CodeForbidden when an app would have more secrets than it
// may.
func (c *Checker) MayHaveSecrets(app bourse.App, n int) error {
	if quota := c.quotas.ofApp(app.Name); n > quota.Secrets {
		return exceeded("app", string(app.Name), int64(quota.Secrets), "secrets")
	}
	return nil
}

// MayHaveApp is MayHaveMachine for an app.
func (c *Checker) MayHaveApp(ctx context.Context, org string) error {
	apps, err := c.machines.View.Apps(ctx)
	if err != nil {
		c.machines.Log.WarnContext(ctx, "read view failed", slog.Any("err", err))
		return nil
	}
	n := 0
	for _, a := range apps {
		if a.Org == org && a.DeletedAt == nil {
			n++
		}
	}
	if quota := c.quotas.ofOrg(org); n >= quota.Apps {
		return exceeded("organization", org, int64(quota.Apps), "apps")
	}
	return nil
}

// MayOrder reports CodeRateLimited when an order would exceed a rate. Only what
// is known without reading the request counts: the path's app, and the token's
// organization.
func (c *Checker) MayOrder(app bourse.AppName, org string) error {
	now := c.machines.Now()
	if app == "" {
		app = bourse.DefaultAppName
	}
	if limit := c.quotas.ofApp(app).OrdersPerSecond; !c.rates.Take("app "+string(app), limit, now) {
		return bourse.Errorf(bourse.CodeRateLimited, "quota exceeded: app %s may place %d orders a second", bourse.Quoted(string(app)), limit)
	}
	if org != "" {
		if limit := c.quotas.ofOrg(org).OrdersPerSecond; !c.rates.Take("org "+org, limit, now) {
			return bourse.Errorf(bourse.CodeRateLimited, "quota exceeded: organization %s may place %d orders a second", bourse.Quoted(org), limit)
		}
	}
	return nil
}
