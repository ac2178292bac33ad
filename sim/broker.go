package sim

import (
	"slices"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// broker is a simulated broker. Its knowledge of the workers is a hint: it comes from the view, and
// from the answers to its own requests.
type broker struct {
	name    string
	latest  []Worker           // the latest state of each worker that the broker has learned
	known   []Worker           // latest, adjusted for the broker's unanswered claims
	stamps  []uint32           // increases with each change of known
	claims  [][]*order         // the unanswered claims, by worker
	members [][]bourse.Member  // by region
	hints   [][3]bourse.Amount // free amounts; the members' Free fields refer to them
	ratings [][]rating         // by shape and worker
}

// rating is a cached score of a worker for orders of one shape.
type rating struct {
	stamp uint32 // the worker's stamp for which the score is valid
	fits  bool
	score float32
}

func newBroker(x *exchange, index int) broker {
	n := len(x.workers)
	b := broker{name: "b" + strconv.Itoa(index), latest: make([]Worker, n), known: make([]Worker, n), stamps: make([]uint32, n), claims: make([][]*order, n), hints: make([][3]bourse.Amount, n)}
	for i, w := range x.workers {
		b.learn(x, int32(i), w)
		for len(b.members) <= w.Host.Region {
			b.members = append(b.members, nil)
		}
		in := &b.members[w.Host.Region]
		*in = append(*in, bourse.Member{ID: w.id, Tag: bourse.WorkerTag(i), Free: b.hints[i][:]})
	}
	b.ratings = make([][]rating, len(x.shapes))
	return b
}

// learn updates the broker's knowledge of a worker, unless the state is outdated.
func (b *broker) learn(x *exchange, worker int32, now *Worker) {
	if now.version > b.latest[worker].version {
		b.latest[worker] = *now
		b.refresh(x, worker)
	}
}

// refresh recomputes what the broker knows about a worker from the worker's latest state and the
// unanswered claims.
func (b *broker) refresh(x *exchange, worker int32) {
	b.known[worker] = b.latest[worker]
	for _, o := range b.claims[worker] {
		b.assume(x, worker, o)
	}
	b.changed(worker)
}

// claim records a claim.
func (b *broker) claim(x *exchange, worker int32, o *order) {
	b.claims[worker] = append(b.claims[worker], o)
	b.assume(x, worker, o)
	b.changed(worker)
}

// unclaim records that a claim was answered or abandoned.
func (b *broker) unclaim(x *exchange, worker int32, o *order) {
	if i := slices.Index(b.claims[worker], o); i >= 0 {
		b.claims[worker] = slices.Delete(b.claims[worker], i, i+1)
	}
	b.refresh(x, worker)
}

// assume updates the broker's knowledge as if the worker had filled the order.
func (b *broker) assume(x *exchange, worker int32, o *order) {
	if w := &b.known[worker]; w.fits(o) {
		w.take(o, x.strategy.gpu(x.fragments, w, o.Shape, x.rng))
	}
}

// changed updates a worker's stamp and hints. It must be called after each change to the worker's
// entry in b.known.
func (b *broker) changed(worker int32) {
	b.stamps[worker]++
	w := &b.known[worker]
	for i, total := range w.ledger.Totals {
		b.hints[worker][i] = bourse.Amount{Resource: total.Resource, Amount: total.Amount - w.committed[i].Amount}
	}
}

// remove removes a dead worker from the candidates.
func (b *broker) remove(worker int32) {
	in := &b.members[b.latest[worker].Host.Region]
	*in = slices.DeleteFunc(*in, func(m bourse.Member) bool { return m.Tag == bourse.WorkerTag(worker) })
}

// Strategy determines how brokers select and claim workers in a market experiment.
type Strategy struct {
	Name string
	// candidates selects workers in the order's region for one round. If asks is true, the broker
	// requests quotes from these workers. Otherwise, it claims the order on these workers one after
	// the other. If candidates does not return any workers, the order is refused.
	candidates func(x *exchange, b *broker, a *Arrival, round int) []int32
	asks       bool
	curves     *market.Curves // curves that rank the quotes
	score      scoreFunc      // score by which bestKnown selects a worker
	gpu        gpuFunc
	grace      time.Duration // how long a broker waits for missing quotes after the last quote that arrives; 0: until quoteWithin after the request
}

// Strategies returns the strategies that the lab compares.
func Strategies() []Strategy {
	return []Strategy{
		{Name: "Bourse", candidates: sampled(market.DefaultSample), asks: true, curves: &market.Curves{}, gpu: tightest},
		{Name: "Bourse, less patient", candidates: sampled(market.DefaultSample), asks: true, curves: &market.Curves{}, gpu: tightest, grace: 5 * time.Millisecond},
		{Name: "Omega, random fit", candidates: anyKnown, gpu: tightest},
		{Name: "Omega, best fit", candidates: bestKnown, score: bestFit, gpu: tightest},
		{Name: "Sparrow", candidates: random(2, 10), asks: true, curves: &market.Curves{Default: emptiest()}, gpu: tightest},
	}
}

// emptiest returns curves that prefer the emptiest worker.
func emptiest() *market.CurveSet {
	p, err := market.ParsePolicy([]byte(`{"name": "emptiest", "base": "spread"}`))
	if err != nil {
		panic(err) // cannot happen, because the text is constant
	}
	return p.Curves
}

// sampled selects candidates as package market does. If there are at most d workers, it selects all of them. Otherwise,
// it selects a sample biased by hints in the first round, and all workers in the second.
func sampled(d int) func(*exchange, *broker, *Arrival, int) []int32 {
	return func(x *exchange, b *broker, a *Arrival, round int) []int32 {
		in := b.members[a.Region]
		switch {
		case round == 0 && len(in) > d:
			market.Sample(in, x.shapes[a.Shape].needs, d, x.rng)
			return tags(in[:d])
		case round == 0 || round == 1 && len(in) > d: // includes the sampled workers, because other orders may have reordered the members in the meantime
			return tags(in)
		}
		return nil
	}
}

// random selects d random workers in each round.
func random(d, rounds int) func(*exchange, *broker, *Arrival, int) []int32 {
	return func(x *exchange, b *broker, a *Arrival, round int) []int32 {
		if round == rounds {
			return nil
		}
		in := b.members[a.Region]
		market.Sample(in, nil, d, x.rng)
		return tags(in[:min(d, len(in))])
	}
}

// bestKnown selects the worker with the highest score according to the broker's knowledge.
func bestKnown(x *exchange, b *broker, a *Arrival, round int) []int32 {
	if round == knownRounds {
		return nil
	}
	if b.ratings[a.Shape] == nil {
		b.ratings[a.Shape] = make([]rating, len(b.known))
	}
	ratings, best := b.ratings[a.Shape], int32(-1)
	for _, m := range b.members[a.Region] {
		worker := int32(m.Tag)
		r := &ratings[worker]
		if r.stamp != b.stamps[worker] {
			*r = b.rate(x, worker, &x.shapes[a.Shape])
		}
		if r.fits && (best < 0 || r.score > ratings[best].score) {
			best = worker
		}
	}
	if best < 0 {
		return nil
	}
	return []int32{best}
}

// anyKnown selects a random worker that has room according to the broker's knowledge.
func anyKnown(x *exchange, b *broker, a *Arrival, _ int) []int32 {
	in := b.members[a.Region]
	for i := range in {
		market.Sample(in[i:], nil, 1, x.rng)
		if worker := int32(in[i].Tag); b.known[worker].fits(&x.shapes[a.Shape]) {
			return []int32{worker}
		}
	}
	return nil
}

// rate scores a worker for an order, according to the broker's knowledge.
func (b *broker) rate(x *exchange, worker int32, o *order) rating {
	w := &b.known[worker]
	r := rating{stamp: b.stamps[worker], fits: w.fits(o)}
	if r.fits {
		r.score = float32(x.strategy.score(x.fragments, w, o.Shape))
	}
	return r
}

// knownRounds is the maximum number of rounds for an order if the broker selects candidates by its
// knowledge. After these rounds, it refuses the order.
const knownRounds = 20

func tags(members []bourse.Member) []int32 {
	out := make([]int32, len(members))
	for i := range members {
		out[i] = int32(members[i].Tag)
	}
	return out
}

// pool stores snapshots of workers.
type pool struct {
	all  []Worker
	free []int32
}

func (p *pool) take(w *Worker) int32 {
	if n := len(p.free); n > 0 {
		i := p.free[n-1]
		p.free = p.free[:n-1]
		p.all[i] = *w
		return i
	}
	p.all = append(p.all, *w)
	return int32(len(p.all) - 1)
}

func (p *pool) at(i int32) *Worker { return &p.all[i] }

func (p *pool) put(i int32) { p.free = append(p.free, i) }
