package sim

import (
	"container/heap"
	"math/rand/v2"
	"time"
)

// event is something that happens at a point in virtual time.
type event struct {
	at     time.Duration
	seq    uint64 // order of events at the same time
	kind   eventKind
	order  int32 // index of the order; -1 if the event does not concern an order
	worker int32
	extra  int32 // index of a snapshot, or of a GPU
}

type eventKind uint8

const (
	arrive   eventKind = iota // a client sends the order to a broker
	ask                       // a worker receives a request for a quote
	decide                    // the broker has the quotes, or has waited long enough
	claim                     // a worker receives a claim
	answered                  // the broker receives the answer to a claim
	end                       // a machine ends
	publish                   // brokers learn a worker's state from the view
	die                       // a worker dies
	detect                    // brokers learn that a worker is dead
)

// clock contains the current virtual time and the queue of future events. The zero value is ready
// to use.
type clock struct {
	now    time.Duration
	future queue
	seq    uint64
}

func (c *clock) add(e event, after time.Duration) {
	c.seq++
	e.at, e.seq = c.now+max(0, after), c.seq
	heap.Push(&c.future, e)
}

// next removes the earliest event, and sets the clock to its time.
func (c *clock) next() (event, bool) {
	if len(c.future) == 0 {
		return event{}, false
	}
	first := heap.Pop(&c.future).(event)
	c.now = first.at
	return first, true
}

// queue is a heap of events.
type queue []event

func (q queue) Len() int { return len(q) }
func (q queue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q queue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(e any)   { *q = append(*q, e.(event)) }

func (q *queue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	*q = (*q)[:last]
	return e
}

// Conditions describe the network, the workers and the brokers of a market experiment.
type Conditions struct {
	Brokers int
	ViewAge time.Duration // time after which brokers learn a worker's state from the view
	Delay   time.Duration // mean delay of a message; half of it is constant, the rest is exponential
	Loss    float64       // share of messages that are lost
	Slow    float64       // share of workers that are slow
	Deaths  int           // number of workers that die, evenly spread over the experiment
}

// Durations in a market experiment. A worker processes one message at a time. The times for a claim
// are close to those measured in docs/benchmarks.md.
const (
	quoteWork    = 20 * time.Microsecond  // time that a worker is busy with a request for a quote
	claimWork    = 200 * time.Microsecond // time that a worker is busy with a claim
	startTime    = 2 * time.Millisecond   // time until the claim is durable and the machine has started
	slowFactor   = 20                     // how many times longer a slow worker takes
	quoteWithin  = 250 * time.Millisecond // how long a broker waits for quotes, as in market.Config
	claimTimeout = time.Second            // how long a broker waits for the answer to a claim
	detectTime   = 5 * time.Second        // time until brokers notice that a worker is dead
)

// delay returns a random delay for a message, and whether the message arrives.
func (c *Conditions) delay(rng *rand.Rand) (time.Duration, bool) {
	d := c.Delay/2 + time.Duration(rng.ExpFloat64()*float64(c.Delay/2))
	return d, c.Loss == 0 || rng.Float64() >= c.Loss
}
