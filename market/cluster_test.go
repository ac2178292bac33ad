package market_test

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Spec describes a worker of a cluster.
type Spec struct {
	ID     bourse.WorkerID
	Region bourse.Region
	Hint   bourse.Region  // the worker's region according to the directory; default Region
	Total  bourse.Amounts // the worker's capacity
	Labels map[string]string
	Load   float64
}

// Cluster consists of workers in memory, a directory that may be wrong about them, and a
// network between them and any number of brokers. The network can lose, delay, repeat and
// reorder messages; see [Chaos]. Delays are timers, so a cluster is best used in a
// synctest bubble. It is safe for concurrent use.
type Cluster struct {
	order   []bourse.WorkerID // IDs in the order in which the workers were passed to newCluster
	workers map[bourse.WorkerID]*worker
	flying  sync.WaitGroup // counts the messages in flight

	mu      sync.Mutex
	members map[bourse.Region][]bourse.Member
	absent  []bourse.Absence
	leaving []bourse.Member
	faults  func(Call) Fault
	calls   map[Verb]int
}

var _ market.Directory = (*Cluster)(nil)

// newCluster returns a cluster with a working network.
func newCluster(specs ...Spec) *Cluster {
	c := &Cluster{
		workers: map[bourse.WorkerID]*worker{},
		members: map[bourse.Region][]bourse.Member{},
		calls:   map[Verb]int{},
	}
	for i, s := range specs {
		tag := bourse.WorkerTag(i + 1)
		hint := s.Hint
		if hint == "" {
			hint = s.Region
		}
		c.order = append(c.order, s.ID)
		c.workers[s.ID] = newWorker(s, tag)
		c.members[hint] = append(c.members[hint], bourse.Member{
			ID: s.ID, Role: bourse.RoleWorker, Region: hint, Address: string(s.ID) + ":1", Tag: tag, Free: slices.Clone(s.Total),
		})
	}
	return c
}

// Regions implements market.Directory.
func (c *Cluster) Regions() []bourse.Region {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.members))
}

// Candidates implements market.Directory.
func (c *Cluster) Candidates(region bourse.Region) []bourse.Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.members[region])
}

// All implements market.Directory.
func (c *Cluster) All() (here []bourse.Member, away []bourse.Absence) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, region := range slices.Sorted(maps.Keys(c.members)) {
		here = append(here, c.members[region]...)
	}
	return append(here, c.leaving...), slices.Clone(c.absent)
}

// Lose makes the directory list a worker as absent since the given time. The worker keeps running.
func (c *Cluster) Lose(id bourse.WorkerID, since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for region, list := range c.members {
		if i := slices.IndexFunc(list, func(m bourse.Member) bool { return m.ID == id }); i >= 0 {
			c.absent = append(c.absent, bourse.Absence{Member: list[i], Since: since})
			c.members[region] = slices.Delete(list, i, i+1)
		}
	}
}

// Leave marks a worker in the directory as leaving, so that it accepts no more orders.
func (c *Cluster) Leave(id bourse.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for region, list := range c.members {
		if i := slices.IndexFunc(list, func(m bourse.Member) bool { return m.ID == id }); i >= 0 {
			m := list[i]
			m.Leaving = true
			c.leaving = append(c.leaving, m)
			c.members[region] = slices.Delete(list, i, i+1)
		}
	}
}

// Find makes a worker a member again after Lose.
func (c *Cluster) Find(id bourse.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.IndexFunc(c.absent, func(a bourse.Absence) bool { return a.ID == id }); i >= 0 {
		m := c.absent[i].Member
		c.absent = slices.Delete(c.absent, i, i+1)
		c.members[m.Region] = append(c.members[m.Region], m)
	}
}

// Forget removes a worker from the directory. The worker keeps running.
func (c *Cluster) Forget(id bourse.WorkerID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for region, list := range c.members {
		c.members[region] = slices.DeleteFunc(list, func(m bourse.Member) bool { return m.ID == id })
	}
}

// Break makes the network unreliable: from now on, faults determines what happens to each new
// message. If faults is nil, the network works again. Messages in flight are not affected.
func (c *Cluster) Break(faults func(Call) Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = faults
}

// Calls returns the number of messages of kind v sent so far. A request for quotes counts once for
// each worker.
func (c *Cluster) Calls(v Verb) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.calls[v]
}

// Quiet waits until no messages are in flight.
func (c *Cluster) Quiet() { c.flying.Wait() }

// Living returns the machines that fill an order and have not been destroyed, sorted in the order
// of the workers.
func (c *Cluster) Living(order bourse.OrderID) []bourse.Machine {
	var out []bourse.Machine
	for _, id := range c.order {
		if m := c.workers[id].filled(order); m != nil {
			out = append(out, *m)
		}
	}
	return out
}

// Used returns the amount of a resource that is committed in a worker's ledger.
func (c *Cluster) Used(id bourse.WorkerID, r bourse.Resource) int64 {
	w := c.workers[id]
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.used[r]
}

// Kept returns the decision that a worker has stored with the machine that fills an order.
func (c *Cluster) Kept(order bourse.OrderID) (bourse.Decision, bool) {
	for _, w := range c.workers {
		w.mu.Lock()
		e := w.orders[order]
		w.mu.Unlock()
		if e != nil && e.machine != nil && !e.canceled {
			return e.decision, true
		}
	}
	return bourse.Decision{}, false
}

// Tell makes a worker lie in its answers. If lies is nil, it answers honestly again.
func (c *Cluster) Tell(id bourse.WorkerID, lies *Lies) {
	w := c.workers[id]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lies = lies
}

// Lies changes a worker's answers, but not its actions. Any field may be nil.
type Lies struct {
	Quote func(*bourse.Quote)
	Claim func(*bourse.Fill, *bourse.Refusal, error) (*bourse.Fill, *bourse.Refusal, error)
	Pulls func() *bourse.Refusal // refuses to pull an image; nil: the worker can pull every image
}

// Clear destroys all machines and deletes all orders.
func (c *Cluster) Clear() {
	for _, w := range c.workers {
		w.mu.Lock()
		clear(w.used)
		clear(w.orders)
		w.mu.Unlock()
	}
}
