package sim

import (
	"math"
	oldrand "math/rand" // the paper's simulator uses it, so the same seeds yield the same workloads
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// inflated is the GPU demand at the end of an inflation experiment, as a multiple of the cluster's
// GPUs.
const inflated = 1.3

// MaxLoad is the highest load of an inflation experiment, as a percentage of the cluster's GPUs.
const MaxLoad = 130

// Inflation is the result of an inflation experiment: the figures at each load from 0 to MaxLoad.
type Inflation [MaxLoad + 1]Figure

// inflate returns the orders of an inflation experiment, as indexes of shapes, and the sequence in which policies
// consider the workers, as indexes of hosts. As in the paper's simulator, the trace's orders are shuffled. Then, random
// orders are repeated or removed until the orders demand 130 % of the cluster's GPUs.
func inflate(t *Trace, seed int64) (orders, workers []int) {
	rng := oldrand.New(oldrand.NewSource(seed))
	rng.Int() // skip one number, because the paper's simulator draws one for its log
	demand := 0
	for _, i := range t.Orders {
		demand += t.Shapes[i].GPU()
		orders = append(orders, i)
	}
	rng.Shuffle(len(orders), func(i, j int) { orders[i], orders[j] = orders[j], orders[i] })
	most := inflated * float64(t.GPU())
	for float64(demand) > most {
		i := rng.Intn(len(orders))
		demand -= t.Shapes[orders[i]].GPU()
		orders = append(orders[:i], orders[i+1:]...)
	}
	if len(orders) == len(t.Orders) {
		for {
			i := t.Orders[rng.Intn(len(t.Orders))]
			if float64(demand+t.Shapes[i].Share) > most {
				break
			}
			demand += t.Shapes[i].GPU()
			orders = append(orders, i)
		}
	}
	rank := rng.Perm(len(t.Hosts))
	workers = make([]int, len(rank))
	for i, r := range rank {
		workers[r] = i
	}
	return orders, workers
}

// FirstSeed is the first of the ten seeds used for the published results.
const FirstSeed = 42

// Mean returns the mean of n inflation experiments with different seeds.
func Mean(t *Trace, p *Policy, n int) Inflation {
	results := Parallel(n, func(i int) Inflation { return Inflate(t, p, FirstSeed+int64(i)) })
	var mean Inflation
	for _, r := range results {
		for load := range mean {
			mean[load].Allocated += r[load].Allocated / float64(n)
			mean[load].Fragmented += r[load].Fragmented / float64(n)
		}
	}
	return mean
}

// Parallel calls run(0) to run(n-1) on all processors, and returns their results in that order.
func Parallel[T any](n int, run func(i int) T) []T {
	out := make([]T, n)
	free := make(chan struct{}, runtime.GOMAXPROCS(0))
	var wg sync.WaitGroup
	for i := range n {
		free <- struct{}{}
		wg.Go(func() {
			out[i] = run(i)
			<-free
		})
	}
	wg.Wait()
	return out
}

// Steady returns the orders of an inflation experiment as arrivals at random times. rate is the mean number of arrivals
// per second.
func Steady(t *Trace, rate float64, seed int64) []Arrival {
	list, _ := inflate(t, seed)
	rng := rand.New(rand.NewPCG(uint64(seed), 2))
	out := make([]Arrival, len(list))
	at := time.Duration(0)
	for i, shape := range list {
		at += time.Duration(rng.ExpFloat64() / rate * float64(time.Second))
		out[i] = Arrival{At: at, Shape: shape}
	}
	return out
}

// Inflate runs an inflation experiment.
func Inflate(t *Trace, p *Policy, seed int64) Inflation {
	list, sequence := inflate(t, seed)
	c := newScan(t, p, sequence, rand.New(rand.NewPCG(uint64(seed), 0)))
	m := meter{total: float64(t.GPU())}
	for _, w := range c.workers {
		m.fragmented += c.fragments.of(new(w.state()))
	}
	for _, shape := range list {
		o := &c.orders[shape]
		if w := c.choose(shape); w != nil {
			m.fragmented -= c.fragments.of(new(w.state()))
			w.take(o, p.gpu(c.fragments, w, o.Shape, c.rng))
			m.fragmented += c.fragments.of(new(w.state()))
			m.allocated += float64(o.GPU())
		}
		m.arrived(o.GPU())
	}
	return m.result()
}

// scan compares all workers to place an order. It caches each worker's score or quote for each shape until the worker
// changes.
type scan struct {
	policy    *Policy
	workers   []*Worker // in the order in which they are considered
	orders    []order   // by shape
	fragments *Fragments
	rng       *rand.Rand
	memo      [][]answer // by shape and worker

	quotes []bourse.Quote // the willing workers' quotes for the current order
	at     []*Worker      // their workers
	ranked []market.Ranked
}

// answer is a worker's cached answer to an order.
type answer struct {
	version uint32 // the worker's version for which the answer is valid; never: the worker has no room, and never will
	score   float32
	quote   *bourse.Quote
}

const never = math.MaxUint32

func newScan(t *Trace, p *Policy, sequence []int, rng *rand.Rand) *scan {
	c := &scan{policy: p, orders: newOrders(t.Shapes, p.costs), fragments: newFragments(t), rng: rng}
	for _, i := range sequence {
		c.workers = append(c.workers, newWorker(i, &t.Hosts[i]))
	}
	c.memo = make([][]answer, len(t.Shapes))
	for i := range c.memo {
		c.memo[i] = make([]answer, len(c.workers))
	}
	return c
}

// choose returns the best worker for an order, or nil if none has room.
func (c *scan) choose(shape int) *Worker {
	if c.policy.curves != nil {
		return c.rank(shape)
	}
	var best *Worker
	most, equal := float32(0), 0
	for i, w := range c.workers {
		a := c.ask(shape, i)
		if a == nil {
			continue
		}
		switch {
		case best == nil || a.score > most:
			best, most, equal = w, a.score, 1
		case a.score == most && c.policy.random:
			if equal++; c.rng.IntN(equal) == 0 {
				best = w
			}
		}
	}
	return best
}

// rank returns the worker that market.Rank prefers.
func (c *scan) rank(shape int) *Worker {
	c.quotes, c.at = c.quotes[:0], c.at[:0]
	for i, w := range c.workers {
		if a := c.ask(shape, i); a != nil {
			c.quotes, c.at = append(c.quotes, *a.quote), append(c.at, w)
		}
	}
	c.ranked = market.Rank(&c.orders[shape].Order, c.quotes, c.policy.curves, "b0", c.rng, c.ranked[:0])
	if len(c.ranked) == 0 {
		return nil
	}
	return c.at[c.ranked[0].Quote]
}

// ask returns a worker's answer to an order, or nil if the worker has no room. Machines never stop in
// inflation experiments, so a worker that has no room for an order will never have room for it.
func (c *scan) ask(shape, worker int) *answer {
	a, w, o := &c.memo[shape][worker], c.workers[worker], &c.orders[shape]
	switch {
	case a.version == never:
		return nil
	case a.version == w.version:
		return a
	case !w.fits(o):
		a.version = never
		return nil
	}
	a.version = w.version
	switch p := c.policy; {
	case p.curves != nil:
		a.quote = new(w.quote(o, c.fragments))
	case !p.random:
		a.score = float32(p.score(c.fragments, w, o.Shape))
	}
	return a
}

// meter computes the figures at each load in the same way as the paper. It rounds the load after each order's arrival
// to a whole percentage, and averages the figures over all orders with the same rounded load.
type meter struct {
	total                         float64
	demand, allocated, fragmented float64
	sums                          Inflation
	counts                        [MaxLoad + 1]int
}

func (m *meter) arrived(gpu int) {
	if m.total == 0 {
		return
	}
	m.demand += float64(gpu)
	load := int(math.RoundToEven(100 * m.demand / m.total))
	if load > MaxLoad {
		return
	}
	m.counts[load]++
	m.sums[load].Allocated += 100 * m.allocated / m.total
	m.sums[load].Fragmented += 100 * m.fragmented / m.total
}

func (m *meter) result() Inflation {
	out := m.sums
	for i, n := range m.counts {
		if n > 0 {
			out[i].Allocated /= float64(n)
			out[i].Fragmented /= float64(n)
		} else if i > 0 {
			out[i] = out[i-1]
		}
	}
	return out
}
