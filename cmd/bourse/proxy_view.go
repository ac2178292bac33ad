package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/proxy/route"
	"github.com/bourse-dev/bourse/view"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// routes is what a proxy routes where, as far as its view says. While the view
// cannot be read, or is a new file that knows less, what was known stays.
type routes struct {
	source  routeSource
	domains []string
	hosts   map[string]bourse.AppName
	any     map[int]int // by port of a listener that stands for any: the one that comes first
	changed func(*route.Table)
	every   time.Duration // a table is made at most: tablesEvery
	log     *slog.Logger

	builder route.Builder // run's own, as is last
	last    routable
	failed  quiet.Line
	current atomic.Pointer[route.Table]
	known   atomic.Bool // a table was made of all that others know

	mu   sync.Mutex
	next chan struct{} // closed when the next table is there, nil when no one waits; guarded by mu
}

// routeSource is where a proxy knows the cluster from.
type routeSource interface {
	// read returns the machines that have services, and all apps.
	read(ctx context.Context) (routable, error)
	// whole reports whether what is read is all that others know.
	whole() bool
	// heard returns the worker that is heard from and has a tag.
	heard(tag bourse.WorkerTag) (bourse.WorkerID, bool)
	// members returns a channel that is closed when who is heard from changes.
	members() <-chan struct{}
}

// routable is what routes are made of.
type routable struct {
	machines []bourse.Machine
	apps     []bourse.App
}

const (
	// tablesEvery is how often a table is made at most: a deploy changes many machines
	// in a moment.
	tablesEvery = 20 * time.Millisecond
	// tablesTimeout bounds the reading of the view.
	tablesTimeout = 10 * time.Second
	// tablesAgain is when the view is read again that could not be, or knew less.
	tablesAgain = time.Second
)

// run makes a table whenever the view or the membership changes, until ctx ends: at
// once after a quiet time, otherwise after a rest that leaves the processors to
// requests.
func (r *routes) run(ctx context.Context, moved <-chan struct{}) error {
	for {
		members := r.source.members() // before they are looked at
		began := time.Now()
		var again <-chan time.Time
		if !r.build(ctx) {
			again = time.After(tablesAgain)
		}
		rest := time.NewTimer(max(r.every, 2*time.Since(began)))
		select {
		case <-rest.C:
		case <-ctx.Done():
			rest.Stop()
			return nil
		}
		select {
		case <-moved:
		case <-members:
		case <-again:
		case <-ctx.Done():
			return nil
		}
	}
}

// build makes a table of what the source knows now, and reports whether that is all.
func (r *routes) build(ctx context.Context) bool {
	whole := r.source.whole() // before it is read
	limited, cancel := context.WithTimeout(ctx, tablesTimeout)
	defer cancel()
	now, err := r.source.read(limited)
	switch {
	case err != nil:
		if _, due := r.failed.Due(); due && ctx.Err() == nil {
			r.log.Warn("what machines serve cannot be read from the view: what was known stays", slog.Any("err", err))
		}
		now = r.last // who is heard from may have changed
	case !whole:
		now = now.with(r.last)
	}
	r.last = now
	table := r.builder.Build(route.Input{Apps: now.apps, Machines: now.machines, Heard: r.source.heard, Domains: r.domains, Hosts: r.hosts})
	r.current.Store(table)
	if whole && err == nil {
		r.known.Store(true)
	}
	r.tell()
	if r.changed != nil {
		r.changed(table)
	}
	return whole && err == nil
}

// with adds what was known before and is not in what is known now.
func (s routable) with(before routable) routable {
	type key struct {
		worker bourse.WorkerID
		id     bourse.MachineID
	}
	machines := make(map[key]bool, len(s.machines))
	for i := range s.machines {
		machines[key{s.machines[i].Worker, s.machines[i].ID}] = true
	}
	apps := make(map[bourse.AppName]bool, len(s.apps))
	for i := range s.apps {
		apps[s.apps[i].Name] = true
	}
	s.machines, s.apps = slices.Clip(s.machines), slices.Clip(s.apps)
	for i := range before.machines {
		if m := &before.machines[i]; !machines[key{m.Worker, m.ID}] {
			s.machines = append(s.machines, *m)
		}
	}
	for i := range before.apps {
		if !apps[before.apps[i].Name] {
			s.apps = append(s.apps, before.apps[i])
		}
	}
	return s
}

// Find implements proxy.Routes. Before all is known that others know, an app that is
// not may come yet: CodeUnavailable.
func (r *routes) Find(host string, port int) (*route.Target, error) {
	known := r.known.Load() // before the table
	t, err := r.find(r.current.Load(), host, port)
	if !known && bourse.CodeOf(err) == bourse.CodeNotFound {
		err = bourse.Errorf(bourse.CodeUnavailable, "this proxy does not know all apps yet: try again")
	}
	return t, err
}

// find looks a listener's port up in a table.
func (r *routes) find(table *route.Table, host string, port int) (*route.Target, error) {
	if first := r.any[port]; first != 0 {
		return table.FindAny(host, first)
	}
	return table.Find(host, port)
}

// Changed implements proxy.Routes.
func (r *routes) Changed() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = make(chan struct{})
	}
	return r.next
}

// tell wakes those who wait for a table.
func (r *routes) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next != nil {
		close(r.next)
		r.next = nil
	}
}

// App implements edge.Routes.
func (r *routes) App(name bourse.AppName) []*route.Target { return r.current.Load().App(name) }

// viewSource is a proxy's own view and membership.
type viewSource struct {
	*server
	serving inventory.Serving
}

var _ routeSource = (*viewSource)(nil)

func (s *viewSource) read(ctx context.Context) (out routable, err error) {
	if out.machines, err = view.Ask(ctx, s.replica.View, s.serving.Read); err == nil {
		out.apps, err = s.replica.Apps(ctx)
	}
	return out, err
}

func (s *viewSource) whole() bool { return s.replica.InSync() }

func (s *viewSource) heard(tag bourse.WorkerTag) (bourse.WorkerID, bool) {
	m, ok := s.replica.directory.ByTag(tag)
	return m.ID, ok
}

func (s *viewSource) members() <-chan struct{} { return s.changed() }

// routing is the stage in which a proxy's routes follow its view.
func (p *proxyServer) routing() stage {
	return stage{name: "routes", run: func(ctx context.Context) error {
		watcher := p.replica.Watch(wire.TableMachines, wire.TableApps)
		defer watcher.Stop()
		return p.routes.run(ctx, watcher.C)
	}}
}
