// Package balance chooses which machine of a target a request goes to, and counts
// what each has in progress.
//
// [Choose] is the choice, a pure function. A [Balancer] is what it is made by: how
// many requests each machine has of this proxy and of others, which machines and
// workers have just failed, and who waits for room. While all machines of an app are at
// their hard limits requests wait in order; the place that one leaves is handed to the
// first that may use it, so none is woken in vain and none is forgotten.
//
// A Balancer keeps nothing, and has no goroutines of its own. One mutex guards all of
// it; nothing is called under it but [Config.Others], which must not block.
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

// Config says what a balancer is for.
type Config struct {
	Region bourse.Region // of this proxy
	// Others returns how many requests other proxies have at a machine, as far as is
	// known. Nil: there are none.
	Others           func(bourse.MachineID) int
	MaxWaitingPerApp int        // requests of one app that wait at most; default 2048
	MaxWaiting       int        // requests that wait at most; default 32768
	Rand             *rand.Rand // nil: seeded at random
}

// Defaults and times of a balancer.
const (
	defaultWaitingPerApp = 2048
	defaultWaiting       = 1 << 15

	// lookAgain is how often the first who waits looks whether other proxies have left
	// room, or a suspicion has ended: of that no one notifies us.
	recheckInterval = 100 * time.Millisecond
)

// Balancer counts and chooses. It is safe for concurrent use.
type Balancer struct {
	config Config

	mu        sync.Mutex
	table     *route.Table // nil: targets are taken as they are given
	machines  map[bourse.MachineID]*machineLoad
	workers   map[bourse.WorkerID]*failures
	queues    map[string]*list.List // of *waiter, by the id of their app; none is empty
	waiting   int                   // in all queues
	distances distances
	input     Input
}

// use is what is counted of a machine that has anything to count.
type machineLoad struct {
	inProgress  int
	failures    failures
	lastSuccess time.Time // when a request ended well last, while any is in progress
}

// New makes a balancer. It starts nothing.
func New(c Config) *Balancer {
	if c.MaxWaitingPerApp == 0 {
		c.MaxWaitingPerApp = defaultWaitingPerApp
	}
	if c.MaxWaiting == 0 {
		c.MaxWaiting = defaultWaiting
	}
	if c.Rand == nil {
		c.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())) //nolint:gosec // no secret
	}
	b := &Balancer{
		config: c, machines: map[bourse.MachineID]*machineLoad{}, workers: map[bourse.WorkerID]*failures{}, queues: map[string]*list.List{},
		distances: distances{here: c.Region},
	}
	b.input = Input{Load: b.load, Distance: b.distances.of, Rand: c.Rand}
	return b
}

// Turn is a request's place at a machine.
type Slot struct {
	balancer *Balancer
	app      string // id
	backend  route.Backend
	began    time.Time
	done     bool // guarded by the balancer's mutex
}

// Backend returns the machine.
func (t *Slot) Backend() route.Backend { return t.backend }

// Take returns a place at the machine that a request goes to. The caller calls Done.
// It waits while all are at their hard limits. Codes: unavailable (no machine can answer,
// or too many wait), timeout (the context's deadline came first), canceled.
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
		turn := b.reserve(t, &t.Backends[i])
		b.mu.Unlock()
		return turn, nil
	case Full:
		return b.wait(ctx, t, w)
	case None:
	}
	err := b.errNone(t, &w)
	b.mu.Unlock()
	return nil, err
}

// current returns what a target is now. The caller holds the mutex.
func (b *Balancer) refresh(t *route.Target) (*route.Target, bool) {
	if b.table == nil {
		return t, true
	}
	if now := b.table.Current(t); now != nil {
		return now, true
	}
	return t, false
}

// load implements Sight.Load. The caller holds the mutex.
func (b *Balancer) load(m *route.Backend) Load {
	var l Load
	now := time.Time{}
	if u := b.machines[m.Machine]; u != nil {
		l.Ours = u.inProgress
		if u.failures.count > 0 {
			now = time.Now()
			l.Suspect = u.failures.appliesTo(m, now)
		}
	}
	l.Use = l.Ours
	if b.config.Others != nil {
		l.Use += max(b.config.Others(m.Machine), 0)
	}
	if s := b.workers[m.Worker]; s != nil && !l.Suspect {
		if now.IsZero() {
			now = time.Now()
		}
		l.Suspect = now.Before(s.until)
	}
	return l
}

// occupy counts a request at a machine. The caller holds the mutex.
func (b *Balancer) reserve(t *route.Target, m *route.Backend) *Slot {
	u := b.machines[m.Machine]
	if u == nil {
		u = &machineLoad{}
		b.machines[m.Machine] = u
	}
	u.inProgress++
	return &Slot{balancer: b, app: t.App.ID, backend: *m, began: time.Now()}
}

// Done ends the place. An error says that the machine failed: others are preferred
// for a while. That the client left says nothing of the machine. Further calls do
// nothing.
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

// leave ends the counting of a turn, and hands the place to who waits for it. The
// caller holds the mutex.
func (b *Balancer) release(t *Slot) {
	id := t.backend.Machine
	u := b.machines[id]
	if u.inProgress--; u.inProgress == 0 && u.failures.count == 0 {
		delete(b.machines, id)
	}
	b.handOver(t.app, id)
}
