// Package balance chooses which of a target's machines handles a request, and counts the requests in progress on each
// machine.
//
// [Choose] is a pure function. A [Balancer] maintains the input of Choose: the number of requests that each machine
// is handling for this proxy and for others, and which machines and workers failed recently. While all machines of an
// app are at their hard limits, the Balancer queues requests. A released slot is handed directly to the first waiting
// request that can use it.
//
// A Balancer keeps all of its state in memory and does not start any goroutines. One mutex guards
// the state. The only callback invoked with the mutex held is [Config.Others], which must not
// block.
package balance

import (
	"container/list"
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Config configures a Balancer.
type Config struct {
	Region bourse.Region // the proxy's region
	// Others returns the number of requests that other proxies have in progress on a machine, as
	// last reported. If Others is nil, those requests are not counted.
	Others           func(bourse.MachineID) int
	MaxWaitingPerApp int        // maximum number of waiting requests per app; default 2048
	MaxWaiting       int        // maximum number of waiting requests; default 32768
	Rand             *rand.Rand // source of random numbers; default: a randomly seeded source
}

// Defaults and intervals.
const (
	defaultWaitingPerApp = 2048
	defaultWaiting       = 1 << 15

	// recheckInterval is the interval at which the first waiter in a queue checks whether a machine can be used
	// again. This is necessary because the Balancer is not notified when other proxies free capacity or when a
	// failure penalty expires.
	recheckInterval = 100 * time.Millisecond
)

// Balancer chooses machines and counts their requests. It is safe for concurrent use.
type Balancer struct {
	config Config

	mu        sync.Mutex
	table     *route.Table // current table; nil: targets are used as passed by the caller
	machines  map[bourse.MachineID]*machineLoad
	workers   map[bourse.WorkerID]*failures
	queues    map[string]*list.List // queues of *waiter, by app ID; empty queues are removed
	waiting   int                   // number of waiters in all queues
	distances distances
	input     Input
}

// machineLoad contains the balancer's data about a machine that has requests in progress or has
// failed recently.
type machineLoad struct {
	inProgress  int
	failures    failures
	lastSuccess time.Time // when the latest successful request ended; valid while requests are in progress
}

// New returns a balancer. It does not start any goroutines.
func New(c Config) *Balancer {
	if c.MaxWaitingPerApp == 0 {
		c.MaxWaitingPerApp = defaultWaitingPerApp
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = defaultWaiting
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // not security-sensitive
	}
	b := &Balancer{
		config: c, machines: map[bourse.MachineID]*machineLoad{}, workers: map[bourse.WorkerID]*failures{}, queues: map[string]*list.List{},
		distances: distances{here: c.Region},
	}
	b.input = Input{Load: b.load, Distance: b.distances.of, Rand: c.Rand}
	return b
}

// Slot represents one request on a machine, and counts toward the machine's limits.
type Slot struct {
	balancer *Balancer
	app      string // ID of the app to which the machine belongs
	backend  route.Backend
	began    time.Time
	done     bool // guarded by the balancer's mutex
}

// Backend returns the machine on which the slot was reserved.
func (t *Slot) Backend() route.Backend { return t.backend }

// Acquire chooses a machine for a request and reserves a slot on it. The caller must call Done on
// the slot. Acquire waits while all machines are at their hard limits. Errors: not_found if the
// target no longer exists; unavailable if no machine can be used or too many requests wait; timeout
// if the context's deadline passes; canceled.
func (b *Balancer) Acquire(ctx context.Context, t *route.Target, w Criteria) (*Slot, error) {
	b.mu.Lock()
	t, ok := b.refresh(t)
	if !ok {
		b.mu.Unlock()
		return nil, errNotServed(t)
	}
	i, how := Choose(t.Backends, &w, &b.input)
	switch how {
	case Chosen:
		slot := b.reserve(t, &t.Backends[i])
		b.mu.Unlock()
		return slot, nil
	case Full:
		return b.wait(ctx, t, w)
	case None:
	}
	err := b.errNone(t, &w)
	b.mu.Unlock()
	return nil, err
}

// refresh returns the target that corresponds to t in the current table. It returns false if there is none. The
// caller holds the mutex.
func (b *Balancer) refresh(t *route.Target) (*route.Target, bool) {
	if b.table == nil {
		return t, true
	}
	if now := b.table.Current(t); now != nil {
		return now, true
	}
	return t, false
}

// load implements Input.Load. The caller holds the mutex.
func (b *Balancer) load(m *route.Backend) Load {
	var l Load
	now := time.Time{}
	if u := b.machines[m.Machine]; u != nil {
		l.Own = u.inProgress
		if u.failures.count > 0 {
			now = time.Now()
			l.Suspect = u.failures.appliesTo(m, now)
		}
	}
	l.InUse = l.Own
	if b.config.Others != nil {
		l.InUse += max(b.config.Others(m.Machine), 0)
	}
	if s := b.workers[m.Worker]; s != nil && !l.Suspect {
		if now.IsZero() {
			now = time.Now()
		}
		l.Suspect = now.Before(s.until)
	}
	return l
}

// reserve counts a request on a machine, and returns the request's slot. The caller holds the mutex.
func (b *Balancer) reserve(t *route.Target, m *route.Backend) *Slot {
	u := b.machines[m.Machine]
	if u == nil {
		u = &machineLoad{}
		b.machines[m.Machine] = u
	}
	u.inProgress++
	return &Slot{balancer: b, app: t.App.ID, backend: *m, began: time.Now()}
}

// Done releases the slot. If the machine has failed, failed is the reason, and other machines are
// temporarily preferred. A canceled error does not count as a failure of the machine. Subsequent calls
// have no effect.
func (t *Slot) Done(failed error) {
	b := t.balancer
	b.mu.Lock()
	defer b.mu.Unlock()
	if t.done {
		return
	}
	t.done = true
	switch {
	case failed == nil:
		b.recordSuccess(t)
	case bourse.CodeOf(failed) != bourse.CodeCanceled:
		b.recordFailure(t)
	}
	b.release(t)
}

// release stops counting the slot's request and offers the slot to waiting requests. The caller
// holds the mutex.
func (b *Balancer) release(t *Slot) {
	id := t.backend.Machine
	u := b.machines[id]
	if u.inProgress--; u.inProgress == 0 && u.failures.count == 0 {
		delete(b.machines, id)
	}
	b.handOver(t.app, id)
}
