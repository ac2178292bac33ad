package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Arrival is an order of a market experiment.
type Arrival struct {
	At     time.Duration
	Life   time.Duration // how long the machine runs; 0: until the end of the experiment
	Shape  int
	Region int
}

// Outcome contains the results of a market experiment.
type Outcome struct {
	Orders    int
	Filled    int
	Refused   int           // orders for which the broker found no room
	Conflicts int           // claims that a worker refused, although the broker expected it to have room
	Lost      int           // machines of dead workers
	Messages  int           // requests to workers
	P50, P99  time.Duration // time from the order's arrival to its fill
	Hottest   float64       // requests to the worker at the 99th percentile, relative to the mean
	Load      Inflation     // figures by the load that has arrived; zero if there are no GPUs
	Busy      float64       // mean share of the CPUs that are allocated when an order arrives
}

// exchange simulates brokers and workers.
type exchange struct {
	clock
	conditions *Conditions
	strategy   *Strategy
	shapes     []order
	arrivals   []Arrival
	trades     []trade
	workers    []*Worker
	hosts      []host
	brokers    []broker
	fragments  *Fragments
	rng        *rand.Rand
	source     rand.Source // seeds the source of each order, as market.Config.Rand does
	snapshots  pool
	refusals   [][]uint32 // the worker's version when it last refused the shape, by shape and worker

	meter     meter
	outcome   Outcome
	latencies []time.Duration
	cpu, used int64 // CPUs of all workers, and those in use
	busy      float64
}

// host holds the state of a simulated worker's host: its faults and its load.
type host struct {
	slow, dead bool
	idleAt     time.Duration // when it has processed all messages
	requests   int
}

// trade is the state of an order's placement.
type trade struct {
	broker  int32
	seed    [2]uint64
	rounds  int8
	missing bool  // whether at least one quote will not arrive
	open    int32 // number of requests that have not been processed
	last    time.Duration
	asked   time.Duration
	quotes  []bourse.Quote
	from    []int32 // the workers that have sent the quotes
	seen    []int32 // snapshots of these workers
	ranked  []int32 // the workers to claim, best first
	worker  int32   // the worker that has filled the order
}

// Trade runs a market experiment.
func Trade(t *Trace, arrivals []Arrival, s *Strategy, c *Conditions, seed int64) Outcome {
	x := newExchange(t, arrivals, s, c, seed)
	x.run()
	return x.result()
}

// Placements runs a market experiment, and returns the index of the worker that filled each order, or -1 if the order
// was refused.
func Placements(t *Trace, arrivals []Arrival, s *Strategy, c *Conditions, seed int64) []int {
	x := newExchange(t, arrivals, s, c, seed)
	x.run()
	out := make([]int, len(arrivals))
	for i := range x.trades {
		out[i] = int(x.trades[i].worker)
	}
	return out
}

func newExchange(t *Trace, arrivals []Arrival, s *Strategy, c *Conditions, seed int64) *exchange {
	x := &exchange{
		conditions: c, strategy: s, shapes: newOrders(t.Shapes, false), arrivals: arrivals, trades: make([]trade, len(arrivals)),
		fragments: newFragments(t), rng: rand.New(rand.NewPCG(uint64(seed), 1)), source: rand.NewPCG(uint64(seed), 2),
		hosts: make([]host, len(t.Hosts)), refusals: make([][]uint32, len(t.Shapes)), meter: meter{total: float64(t.GPU())},
	}
	for i := range t.Hosts {
		w := newWorker(i, &t.Hosts[i])
		x.workers = append(x.workers, w)
		x.hosts[i].slow = x.rng.Float64() < c.Slow
		x.cpu += int64(t.Hosts[i].CPU)
		if w.Host.GPUs > 0 {
			x.meter.fragmented += x.fragments.of(new(w.state()))
		}
	}
	for range c.Brokers {
		x.brokers = append(x.brokers, newBroker(x, len(x.brokers)))
	}
	for i := range c.Deaths {
		x.add(event{kind: die, order: -1, worker: int32(x.rng.IntN(len(x.hosts)))}, arrivals[(i+1)*len(arrivals)/(c.Deaths+1)].At)
	}
	x.add(event{kind: arrive}, arrivals[0].At)
	return x
}

func (x *exchange) run() {
	for e, ok := x.next(); ok; e, ok = x.next() {
		x.handle(&e)
	}
}

// MeanTrade returns the mean outcome of n market experiments with different seeds. Counts are summed, not averaged.
func MeanTrade(n int, run func(seed int64) Outcome) Outcome {
	var mean Outcome
	for _, o := range Parallel(n, func(i int) Outcome { return run(FirstSeed + int64(i)) }) {
		mean.Orders += o.Orders
		mean.Filled += o.Filled
		mean.Refused += o.Refused
		mean.Conflicts += o.Conflicts
		mean.Lost += o.Lost
		mean.Messages += o.Messages
		mean.P50 += o.P50 / time.Duration(n)
		mean.P99 += o.P99 / time.Duration(n)
		mean.Hottest += o.Hottest / float64(n)
		mean.Busy += o.Busy / float64(n)
		for i, f := range o.Load {
			mean.Load[i].Allocated += f.Allocated / float64(n)
			mean.Load[i].Fragmented += f.Fragmented / float64(n)
		}
	}
	return mean
}

func (x *exchange) handle(e *event) {
	switch e.kind {
	case arrive:
		x.arrive(e.order)
	case ask:
		x.ask(e)
	case decide:
		x.decide(e.order)
	case claim:
		x.claim(e)
	case answered:
		x.answered(e)
	case end:
		x.end(e)
	case publish:
		for i := range x.brokers {
			x.brokers[i].learn(x, e.worker, x.snapshots.at(e.extra))
		}
		x.snapshots.put(e.extra)
	case die:
		h := &x.hosts[e.worker]
		if !h.dead {
			h.dead = true
			w := x.workers[e.worker]
			x.outcome.Lost += w.machines
			x.used -= w.committed[0].Amount
			x.meter.allocated -= float64(w.committed[1].Amount)
			x.add(event{kind: detect, order: -1, worker: e.worker}, detectTime)
		}
	case detect:
		for i := range x.brokers {
			x.brokers[i].remove(e.worker)
		}
	}
}

// arrive hands an order to a random broker, and schedules the arrival of the next order.
func (x *exchange) arrive(o int32) {
	if next := int(o) + 1; next < len(x.arrivals) {
		x.add(event{kind: arrive, order: int32(next)}, x.arrivals[next].At-x.now)
	}
	x.busy += float64(x.used) / float64(x.cpu)
	x.trades[o] = trade{broker: int32(x.rng.IntN(len(x.brokers))), seed: [2]uint64{x.source.Uint64(), x.source.Uint64()}, worker: -1}
	x.round(o)
}

// round selects candidates and requests quotes from them. If the strategy does not use quotes, round claims the first
// candidate immediately.
func (x *exchange) round(o int32) {
	t := &x.trades[o]
	b := &x.brokers[t.broker]
	candidates := x.strategy.candidates(x, b, &x.arrivals[o], int(t.rounds))
	t.rounds++
	if len(candidates) == 0 {
		x.outcome.Refused++
		x.settled(o)
		return
	}
	if !x.strategy.asks {
		t.ranked = append(t.ranked[:0], candidates...)
		x.claimNext(o)
		return
	}
	t.open, t.missing, t.asked, t.last = int32(len(candidates)), false, x.now, x.now
	t.quotes, t.from, t.seen = t.quotes[:0], t.from[:0], t.seen[:0]
	for _, w := range candidates {
		x.send(event{kind: ask, order: o, worker: w})
	}
}

// nothing is the value of an event's extra field if the event's message was lost.
const nothing = -1

// send sends a request to a worker.
func (x *exchange) send(e event) {
	x.outcome.Messages++
	d, arrives := x.conditions.delay(x.rng)
	if !arrives {
		e.extra = nothing
	}
	x.add(e, d)
}

// work makes a worker process a request, and returns the time from now until the worker has finished.
func (x *exchange) work(worker int32, work, wait time.Duration) time.Duration {
	h := &x.hosts[worker]
	if h.slow {
		work, wait = work*slowFactor, wait*slowFactor
	}
	h.requests++
	h.idleAt = max(h.idleAt, x.now) + work
	return h.idleAt + wait - x.now
}

// ask computes a worker's quote. Once each of the broker's requests has been answered or lost, it schedules the
// broker's decision.
func (x *exchange) ask(e *event) {
	t := &x.trades[e.order]
	t.open--
	back, arrives := x.conditions.delay(x.rng)
	if e.extra == nothing || x.hosts[e.worker].dead || !arrives {
		t.missing = true
	} else if at := x.now + x.work(e.worker, quoteWork, 0) + back; at > t.asked+quoteWithin {
		t.missing = true
	} else {
		w := x.workers[e.worker]
		t.last = max(t.last, at)
		t.quotes = append(t.quotes, x.quote(w, x.arrivals[e.order].Shape))
		t.from = append(t.from, e.worker)
		t.seen = append(t.seen, x.snapshots.take(w))
	}
	if t.open > 0 {
		return
	}
	switch grace := x.strategy.grace; {
	case t.missing && grace > 0 && len(t.quotes) > 0:
		t.last += grace
	case t.missing:
		t.last = t.asked + quoteWithin
	}
	x.add(event{kind: decide, order: e.order}, t.last-x.now)
}

// quote returns a worker's quote. It caches a refusal until the worker changes.
func (x *exchange) quote(w *Worker, shape int) bourse.Quote {
	if x.refusals[shape] == nil {
		x.refusals[shape] = make([]uint32, len(x.workers))
	}
	last := &x.refusals[shape][w.Index]
	if *last == w.version {
		return bourse.Quote{Refusal: &refused}
	}
	q := w.quote(&x.shapes[shape], x.fragments)
	if q.Refusal != nil {
		*last = w.version
	}
	return q
}

// decide ranks the quotes, and claims the best worker.
func (x *exchange) decide(o int32) {
	t := &x.trades[o]
	b, order := &x.brokers[t.broker], &x.shapes[x.arrivals[o].Shape]
	for i, w := range t.from {
		b.learn(x, w, x.snapshots.at(t.seen[i]))
		x.snapshots.put(t.seen[i])
		if t.quotes[i].Refusal == nil && !b.known[w].fits(order) { // the order no longer fits because of the broker's other claims
			t.quotes[i].Refusal = &refused
		}
	}
	t.ranked = t.ranked[:0]
	rng := rand.New(rand.NewPCG(t.seed[0], t.seed[1]))
	for _, r := range market.Rank(&order.Order, t.quotes, x.strategy.curves, b.name, rng, nil) {
		t.ranked = append(t.ranked, t.from[r.Quote])
	}
	x.claimNext(o)
}

// claimNext claims the best worker that has not been claimed yet.
func (x *exchange) claimNext(o int32) {
	t := &x.trades[o]
	if len(t.ranked) == 0 {
		x.round(o)
		return
	}
	w := t.ranked[0]
	t.ranked = t.ranked[1:]
	x.brokers[t.broker].claim(x, w, &x.shapes[x.arrivals[o].Shape])
	x.send(event{kind: claim, order: o, worker: w})
}

// claim makes a worker check its ledger and fill the order if it fits. If the claim or its answer is lost, the broker
// cancels the claim.
func (x *exchange) claim(e *event) {
	w, h := x.workers[e.worker], &x.hosts[e.worker]
	o := &x.shapes[x.arrivals[e.order].Shape]
	back, arrives := x.conditions.delay(x.rng)
	answer := event{kind: answered, order: e.order, worker: e.worker}
	if e.extra == nothing || h.dead || !arrives {
		answer.extra = nothing
		x.add(answer, claimTimeout)
		return
	}
	wait := time.Duration(0)
	if w.fits(o) {
		x.fill(w, o, e.order)
		wait = startTime
	} else {
		x.outcome.Conflicts++
	}
	answer.extra = x.snapshots.take(w)
	x.add(answer, x.work(e.worker, claimWork, wait)+back)
}

// fill starts a machine.
func (x *exchange) fill(w *Worker, o *order, index int32) {
	gpus := uint8(0)
	x.changed(w, func() { gpus = w.take(o, x.strategy.gpu(x.fragments, w, o.Shape, x.rng)) })
	x.trades[index].worker = int32(w.Index)
	x.used += int64(o.CPU)
	x.meter.allocated += float64(o.GPU())
	if life := x.arrivals[index].Life; life > 0 {
		x.add(event{kind: end, order: index, worker: int32(w.Index), extra: int32(gpus)}, life)
	}
}

// end stops a machine, unless the machine was lost with its worker.
func (x *exchange) end(e *event) {
	if x.hosts[e.worker].dead {
		return
	}
	w, o := x.workers[e.worker], &x.shapes[x.arrivals[e.order].Shape]
	x.changed(w, func() { w.release(o, uint8(e.extra)) })
	x.used -= int64(o.CPU)
	x.meter.allocated -= float64(o.GPU())
}

// changed calls change to modify w. It also updates the fragmentation metric, and schedules the event that publishes
// w's new state to the brokers.
func (x *exchange) changed(w *Worker, change func()) {
	if w.Host.GPUs > 0 {
		x.meter.fragmented -= x.fragments.of(new(w.state()))
	}
	change()
	if w.Host.GPUs > 0 {
		x.meter.fragmented += x.fragments.of(new(w.state()))
	}
	x.add(event{kind: publish, order: -1, worker: int32(w.Index), extra: x.snapshots.take(w)}, x.conditions.ViewAge)
}

// answered completes the order if the worker filled it. Otherwise, the broker claims the next worker.
func (x *exchange) answered(e *event) {
	t := &x.trades[e.order]
	x.brokers[t.broker].unclaim(x, e.worker, &x.shapes[x.arrivals[e.order].Shape])
	if e.extra != nothing {
		x.brokers[t.broker].learn(x, e.worker, x.snapshots.at(e.extra))
		x.snapshots.put(e.extra)
	}
	if t.worker < 0 {
		x.claimNext(e.order)
		return
	}
	x.outcome.Filled++
	x.latencies = append(x.latencies, x.now-x.arrivals[e.order].At)
	x.settled(e.order)
}

// settled records that an order was filled or refused.
func (x *exchange) settled(o int32) {
	x.meter.arrived(x.shapes[x.arrivals[o].Shape].GPU())
	t := &x.trades[o]
	t.quotes, t.from, t.seen, t.ranked = nil, nil, nil, nil
}

func (x *exchange) result() Outcome {
	out := x.outcome
	out.Orders = len(x.arrivals)
	out.Busy = x.busy / float64(len(x.arrivals))
	slices.Sort(x.latencies)
	if n := len(x.latencies); n > 0 {
		out.P50, out.P99 = x.latencies[n/2], x.latencies[n*99/100]
	}
	requests, sum := make([]int, len(x.hosts)), 0
	for i := range x.hosts {
		requests[i] = x.hosts[i].requests
		sum += requests[i]
	}
	slices.Sort(requests)
	out.Hottest = float64(requests[len(requests)*99/100]) * float64(len(requests)) / float64(max(1, sum))
	if x.meter.total > 0 {
		out.Load = x.meter.result()
	}
	return out
}
