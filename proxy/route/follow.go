package route

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// Snapshot is the part of the view from which a routing table is built.
type Snapshot struct {
	Machines []bourse.Machine // machines that have services
	Apps     []bourse.App     // may contain deleted apps
}

// FollowerConfig configures a Follower. Log and all functions except Changed are required.
type FollowerConfig struct {
	// Read reads the view.
	Read func(context.Context) (Snapshot, error)
	// Complete reports whether the view contains all data that other servers have.
	Complete func() bool
	// ReachableWorker returns the reachable worker with the given tag.
	ReachableWorker func(bourse.WorkerTag) (bourse.WorkerID, bool)
	// Members returns a channel that is closed when the set of reachable workers changes.
	Members func() <-chan struct{}

	Domains []string                  // like Input.Domains
	Hosts   map[string]bourse.AppName // like Input.Hosts
	Changed func(*Table)              // called for each new table; may be nil
	Log     *slog.Logger
}

const (
	// buildInterval is the minimum time between two builds, because a deploy changes many machines at about the same
	// time.
	buildInterval = 20 * time.Millisecond
	// readTimeout is the time limit for one read of the view.
	readTimeout = 10 * time.Second
	// retryInterval is the pause after a read that failed or was incomplete.
	retryInterval = time.Second
)

// Follower builds a new routing table whenever the view changes. If the view cannot be read, or is incomplete because
// its file is new, the next table keeps the apps and machines of the previous one.
//
// Find, FindIn, App, Table and Changed are safe for concurrent use.
type Follower struct {
	config FollowerConfig
	any    map[int]int // ports set by ListenAny: the preferred service port for each listener port

	builder Builder  // used only by Run
	last    Snapshot // used only by Run
	failed  quiet.Line
	current atomic.Pointer[Table]
	known   atomic.Bool // a table has been built from a complete view

	mu   sync.Mutex
	next chan struct{} // closed once there is a new table; nil if nobody is waiting; guarded by mu
}

// NewFollower returns a Follower with an empty table. It does not start any goroutines.
func NewFollower(c FollowerConfig) *Follower {
	f := &Follower{config: c, any: map[int]int{}}
	f.current.Store(new(Table))
	return f
}

// ListenAny declares that the listener on the given port serves all HTTP ports of each app. Requests go to the port
// preferred or, if the app does not serve that port, to the app's first HTTP service. ListenAny must be called before
// Find.
func (f *Follower) ListenAny(port, preferred int) { f.any[port] = preferred }

// Run builds a table immediately. Until ctx is done, it builds another one whenever it receives a value from moved,
// when the set of reachable workers changes, and after a read that failed or was incomplete. It pauses after each
// build, to leave CPU time for requests.
func (f *Follower) Run(ctx context.Context, moved <-chan struct{}) error {
	for {
		members := f.config.Members() // get the channel before reading the members, so that no change is missed
		began := time.Now()
		var again <-chan time.Time
		if !f.build(ctx) {
			again = time.After(retryInterval)
		}
		pause := time.NewTimer(max(buildInterval, 2*time.Since(began)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
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

// build builds a table from the view. It reports whether the view was complete.
func (f *Follower) build(ctx context.Context) bool {
	c := &f.config
	// Call Complete before reading the view, so that the view counts as complete only if it was complete when it was
	// read.
	whole := c.Complete()
	limited, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	now, err := c.Read(limited)
	switch {
	case err != nil:
		if _, due := f.failed.Due(); due && ctx.Err() == nil {
			c.Log.Warn("read routes from view failed", slog.Any("err", err))
		}
		now = f.last // build a table anyway, because the reachable workers may have changed
	case !whole:
		now = now.with(f.last)
	}
	f.last = now
	table := f.builder.Build(Input{Apps: now.Apps, Machines: now.Machines, ReachableWorker: c.ReachableWorker, Domains: c.Domains, Hosts: c.Hosts})
	f.current.Store(table)
	if whole && err == nil {
		f.known.Store(true)
	}
	f.wake()
	if c.Changed != nil {
		c.Changed(table)
	}
	return whole && err == nil
}

// with returns a copy of s that also contains those machines and apps of before that are missing from s.
func (s Snapshot) with(before Snapshot) Snapshot {
	type key struct {
		worker bourse.WorkerID
		id     bourse.MachineID
	}
	machines := make(map[key]bool, len(s.Machines))
	for i := range s.Machines {
		machines[key{s.Machines[i].Worker, s.Machines[i].ID}] = true
	}
	apps := make(map[bourse.AppName]bool, len(s.Apps))
	for i := range s.Apps {
		apps[s.Apps[i].Name] = true
	}
	s.Machines, s.Apps = slices.Clip(s.Machines), slices.Clip(s.Apps)
	for i := range before.Machines {
		if m := &before.Machines[i]; !machines[key{m.Worker, m.ID}] {
			s.Machines = append(s.Machines, *m)
		}
	}
	for i := range before.Apps {
		if !apps[before.Apps[i].Name] {
			s.Apps = append(s.Apps, before.Apps[i])
		}
	}
	return s
}

// Table returns the current table.
func (f *Follower) Table() *Table { return f.current.Load() }

// Find returns the target of a host name for a listener's port. Errors: not_found. Until the view has been complete for
// the first time, Find returns unavailable instead of not_found, because the app may still appear.
func (f *Follower) Find(host string, port int) (*Target, error) {
	known := f.known.Load() // read before the table, so that not_found always refers to a complete table
	t, err := f.FindIn(f.current.Load(), host, port)
	if !known && bourse.CodeOf(err) == bourse.CodeNotFound {
		err = bourse.Errorf(bourse.CodeUnavailable, "this proxy does not know all apps yet: try again")
	}
	return t, err
}

// FindIn is like Find, but uses the given table. Errors: not_found.
func (f *Follower) FindIn(table *Table, host string, port int) (*Target, error) {
	if preferred := f.any[port]; preferred != 0 {
		return table.FindAny(host, preferred)
	}
	return table.Find(host, port)
}

// App returns the targets of an app.
func (f *Follower) App(name bourse.AppName) []*Target { return f.current.Load().App(name) }

// Changed returns a channel that is closed when the next table has been built.
func (f *Follower) Changed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next == nil {
		f.next = make(chan struct{})
	}
	return f.next
}

// wake closes the channel that Changed returned.
func (f *Follower) wake() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.next != nil {
		close(f.next)
		f.next = nil
	}
}
