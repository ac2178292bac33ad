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

// Checker checks whether requests would exceed quotas.
type Checker struct {
	quotas   Quotas
	machines *Machines
	rates    throttle.Rates
	usages   usages
}

// NewChecker creates a Checker with empty counters.
func NewChecker(q Quotas, machines *Machines) *Checker {
	return &Checker{quotas: q, machines: machines}
}

// usage contains the amount of each limited resource that an app currently uses.
type usage struct {
	machines, volumes int
	config            int64

	org int // number of machines of the app's organization
}

// usages caches the usage of apps, because counting is expensive.
type usages struct {
	mu sync.Mutex
	of map[bourse.AppRef]*cachedUsage
}

type cachedUsage struct {
	usage
	until time.Time
}

const (
	minCacheTime = time.Second
	// A count is cached for cacheFactor times the time that counting took. This limits the share of time spent on
	// counting.
	cacheFactor = 50
	maxCounted  = 4096
)

// usageOf returns an app's usage. If the view cannot be read, the usage is zero, because missing information must not
// cause refusals. Only one caller counts at a time; in the meantime, other callers use the previous result.
func (c *Checker) usageOf(ctx context.Context, app bourse.App) usage {
	began := c.machines.Now()
	known, current := c.usages.find(app.Ref(), began)
	if current {
		return known
	}
	u := c.count(ctx, app)
	now := c.machines.Now()
	c.usages.mu.Lock()
	defer c.usages.mu.Unlock()
	c.usages.of[app.Ref()] = &cachedUsage{u, now.Add(max(minCacheTime, cacheFactor*now.Sub(began)))}
	return u
}

// find returns an app's cached usage. It returns false if the usage is outdated; the caller must
// then count it again.
func (s *usages) find(ref bourse.AppRef, now time.Time) (usage, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.of[ref]
	switch {
	case c == nil:
		if s.of == nil || len(s.of) >= maxCounted {
			s.of = map[bourse.AppRef]*cachedUsage{}
		}
		c = &cachedUsage{}
		s.of[ref] = c
	case now.Before(c.until):
		return c.usage, true
	}
	c.until = now.Add(minCacheTime)
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
	volumes, _ := c.machines.View.Volumes(ctx, inventory.VolumeFilter{App: app.Name}) // after an error, the app counts as having no volumes
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

// configBytes returns the size of a config as counted by quotas.
func configBytes(c *bourse.Config) int64 {
	raw, _ := json.Marshal(c) // the config was decoded from JSON, so it can be encoded
	return int64(len(raw))
}

// PlacedMachine adds a new machine to its app's cached usage.
func (c *Checker) PlacedMachine(order *bourse.Order) {
	c.placed(order.App, usage{machines: 1, config: configBytes(&order.Config)})
}

// PlacedVolume is like PlacedMachine, but for a volume.
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

// MayHaveMachine returns CodeForbidden if the order's machine would exceed a quota. Quotas do not apply to an order
// that repeats a filled order.
func (c *Checker) MayHaveMachine(ctx context.Context, order *bourse.Order) error {
	quota, orgs, has := c.quotas.ofApp(order.App.Name), c.quotas.ofOrg(order.App.Org), c.usageOf(ctx, order.App)
	var err error
	switch {
	case has.machines >= quota.Machines:
		err = exceeded("app", string(order.App.Name), int64(quota.Machines), "machines")
	case has.org >= orgs.Machines:
		err = exceeded("organization", order.App.Org, int64(orgs.Machines), "machines")
	case has.config+configBytes(&order.Config) > quota.ConfigBytes:
		err = exceeded("app", string(order.App.Name), quota.ConfigBytes, "bytes of config in all its machines")
	}
	if err != nil && order.HasChosenID && c.isRepetition(ctx, order) {
		return nil
	}
	return err
}

// MayHaveConfig returns CodeForbidden if changing a machine's config from old to next would exceed the app's quota. It
// also returns the increase in the config's size, in bytes.
func (c *Checker) MayHaveConfig(ctx context.Context, app bourse.App, old, next *bourse.Config) (more int64, err error) {
	more = configBytes(next) - configBytes(old)
	if quota := c.quotas.ofApp(app.Name); more > 0 && c.usageOf(ctx, app).config+more > quota.ConfigBytes {
		err = exceeded("app", string(app.Name), quota.ConfigBytes, "bytes of config in all its machines")
	}
	return more, err
}

// RecordGrowth records in the app's cached usage that a machine's config has grown by the given
// number of bytes.
func (c *Checker) RecordGrowth(app bourse.App, more int64) { c.placed(app, usage{config: more}) }

// isRepetition reports whether a machine known to this broker already fills the order.
func (c *Checker) isRepetition(ctx context.Context, order *bourse.Order) bool {
	for _, m := range c.machines.Replied(order.App.Name) {
		if m.Order == order.ID {
			return true
		}
	}
	rows, _ := c.machines.View.Machines(ctx, inventory.Filter{App: order.App.Name}) // after an error, rows is empty
	return slices.ContainsFunc(rows, func(l inventory.Listed) bool { return l.Order == order.ID })
}

// MayHaveVolume is like MayHaveMachine, but for a volume.
func (c *Checker) MayHaveVolume(ctx context.Context, app bourse.App) error {
	if quota := c.quotas.ofApp(app.Name); c.usageOf(ctx, app).volumes >= quota.Volumes {
		return exceeded("app", string(app.Name), int64(quota.Volumes), "volumes")
	}
	return nil
}

// MayHaveSecrets returns CodeForbidden if an app would have too many secrets.
func (c *Checker) MayHaveSecrets(app bourse.App, n int) error {
	if quota := c.quotas.ofApp(app.Name); n > quota.Secrets {
		return exceeded("app", string(app.Name), int64(quota.Secrets), "secrets")
	}
	return nil
}

// MayHaveApp returns CodeForbidden if another app would exceed the organization's quota.
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

// MayOrder returns CodeRateLimited if another order would exceed the order rate of the app or the
// organization. It is called before the request's body is read, when only the app in the path and
// the token's organization are known.
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
