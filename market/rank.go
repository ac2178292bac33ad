package market

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/bourse-dev/bourse"
)

// Ranked is a willing quote with its score. It refers to the quote by index, so that sorting
// moves little data.
type Ranked struct {
	Quote int     // index of the quote
	Score float64 // from 0 (worst) to 1 (best)
	tie   uint64  // random number that breaks ties
}

// Rank appends the willing quotes to dst, best first, and returns the result. It is a pure function
// of its arguments. The broker's name determines the workers' positions. rng is required, but it is
// used only to break ties. Each quote is scored with the curves of its region. An invalid number in
// a quote scores 0. If dst has enough capacity, Rank does not allocate for each quote.
func Rank(order *bourse.Order, quotes []bourse.Quote, curves *Curves, broker string, rng *rand.Rand, dst []Ranked) []Ranked {
	scorers := newScorers(order, curves, broker)
	return scorers.rank(quotes, rng, dst)
}

// scorers contains a scorer for each curve set that has been used so far.
type scorers struct {
	order   *bourse.Order
	start   uint64 // the broker's position; see positionOf
	regions map[bourse.Region]*CurveSet
	cached  []setScorer // the first one is the scorer for the default set
}

type setScorer struct {
	set *CurveSet
	scorer
}

func newScorers(order *bourse.Order, curves *Curves, broker string) scorers {
	set := curves.Default
	if set == nil {
		set = DefaultCurves()
	}
	start := xxhash.Sum64String(broker)
	return scorers{order, start, curves.Regions, []setScorer{{set, newScorer(order, set, start)}}}
}

func (s *scorers) of(r bourse.Region) *scorer {
	set := s.regions[r]
	if set == nil {
		return &s.cached[0].scorer
	}
	for i := range s.cached {
		if s.cached[i].set == set {
			return &s.cached[i].scorer
		}
	}
	s.cached = append(s.cached, setScorer{set, newScorer(s.order, set, s.start)})
	return &s.cached[len(s.cached)-1].scorer
}

func (s *scorers) rank(quotes []bourse.Quote, rng *rand.Rand, dst []Ranked) []Ranked {
	from := len(dst)
	for i := range quotes {
		q := &quotes[i]
		if q.Refusal != nil {
			continue
		}
		dst = append(dst, Ranked{Quote: i, Score: s.of(q.Region).score(q), tie: rng.Uint64()})
	}
	slices.SortFunc(dst[from:], func(a, b Ranked) int {
		if a.Score != b.Score { // a score is never NaN
			return cmp.Compare(b.Score, a.Score)
		}
		return cmp.Compare(a.tie, b.tie)
	})
	return dst
}

// scorer scores quotes with a curve set, for one order.
type scorer struct {
	terms []term
	start uint64 // see scorers
}

// term is one quantity that contributes to a score.
type term struct {
	kind     termKind
	name     string          // name of the quantity in the decision
	resource bourse.Resource // used only if kind is utilization
	curve    Curve
	share    float64 // maximum contribution of the term to the total score
	scale    float64 // divisor of the quantity; used only if kind is image
}

type termKind int

const (
	utilization termKind = iota
	image
	spread
	load
	stranded
	position
)

// newScorer returns a scorer whose terms depend only on the order, not on the quotes, so that all quotes are scored by
// the same terms. A quote that lacks a term's quantity scores 0 for that term.
func newScorer(order *bourse.Order, set *CurveSet, start uint64) scorer {
	terms := make([]term, 0, 8)
	for _, r := range scoredResources(order) {
		curve := set.of(r)
		if order.Warm() {
			curve = emptiestFirst
		}
		terms = append(terms, term{kind: utilization, name: string(r), resource: r, curve: curve})
	}
	terms = append(terms,
		term{kind: image, name: "image", curve: set.Image, scale: set.PullRate},
		term{kind: spread, name: "spread", curve: set.Spread},
		term{kind: load, name: "load", curve: set.Load},
	)
	if !order.Warm() {
		terms = append(terms,
			term{kind: stranded, name: "stranded", curve: set.Stranded},
			term{kind: position, name: "position", curve: set.Position},
		)
	}
	terms = slices.DeleteFunc(terms, func(t term) bool { return !(t.curve.Weight > 0) })
	total := 0.0
	for _, t := range terms {
		total += t.curve.Weight
	}
	for i := range terms {
		terms[i].share = terms[i].curve.Weight / total
	}
	return scorer{terms, start}
}

// emptiestFirst is the utilization curve for calls to warm machines. It prefers the least utilized worker, because a
// call finishes sooner there.
var emptiestFirst = Curve{Weight: 1, Points: []Point{{0, 1}, {1, 0}}}

// scoredResources returns the resources whose utilization is scored for an order, sorted.
func scoredResources(order *bourse.Order) []bourse.Resource {
	if order.Kind() == bourse.KindVolume {
		return []bourse.Resource{bourse.ResourceDisk}
	}
	out := []bourse.Resource{bourse.ResourceCPU, bourse.ResourceMemory}
	if order.Warm() {
		out = []bourse.Resource{bourse.TaskResource(order.Task.Name)}
	}
	if g := order.Config.Guest; g != nil && g.GPUs > 0 {
		out = append(out, bourse.GPUResource(g.GPUKind))
	}
	for name, r := range order.Config.Requirements {
		if r.Count > 0 {
			out = append(out, bourse.Resource(name))
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (s *scorer) score(q *bourse.Quote) float64 {
	sum := 0.0
	for i := range s.terms {
		t := &s.terms[i]
		sum += t.curve.At(t.value(q, s.start)) * t.share
	}
	return sum
}

func (s *scorer) explain(q *bourse.Quote) []bourse.ScorePart {
	parts := make([]bourse.ScorePart, len(s.terms))
	for i := range s.terms {
		t := &s.terms[i]
		x := t.value(q, s.start)
		parts[i] = bourse.ScorePart{Name: t.name, Value: x, Score: t.curve.At(x) * t.share}
		if math.IsNaN(x) { // JSON cannot represent NaN
			parts[i].Value = -1
		}
	}
	return parts
}

// value returns the quantity that the term measures in a quote, or NaN if the quantity is
// invalid.
func (t *term) value(q *bourse.Quote, start uint64) float64 {
	x := math.NaN()
	switch t.kind {
	case utilization:
		return utilizationAfter(q, t.resource)
	case image:
		x = float64(q.MissingBytes) / t.scale
	case spread:
		x = float64(q.AppMachines)
	case load:
		x = q.Load
	case stranded:
		x = strandedAfter(q)
	case position:
		x = positionOf(q.Worker, start)
	}
	if !(x >= 0 && x <= math.MaxFloat64) {
		return math.NaN()
	}
	return x
}

// utilizationAfter returns the share of resource r, from 0 to 1, that would be in use after the
// fill. It returns NaN if the quote has no account for r, or if that account shows that the order
// does not fit.
func utilizationAfter(q *bourse.Quote, r bourse.Resource) float64 {
	for i := range q.Accounts {
		if a := &q.Accounts[i]; a.Resource == r {
			return usedAfter(a, q.Takes.Of(r))
		}
	}
	return math.NaN()
}

// usedAfter returns the share of an account, from 0 to 1, that would be in use after an order has taken an amount. It
// returns NaN if the account is invalid, or if the order does not fit.
func usedAfter(a *bourse.Account, takes int64) float64 {
	if sane := a.Total > 0 && a.Total <= bourse.MaxAmount && a.Used >= 0 && a.Used <= a.Total && takes >= 0 && takes <= a.Total-a.Used; !sane {
		return math.NaN()
	}
	return float64(a.Used+takes) / float64(a.Total)
}

// strandedAfter returns a worker's stranded share after the fill, from 0 to 1; see CurveSet.Stranded. If the worker has
// several kinds of GPUs, the kind with the largest free share counts. strandedAfter returns NaN if the accounts for CPU
// or memory are missing or invalid, or if the order does not fit them.
func strandedAfter(q *bourse.Quote) float64 {
	cpu, memory, gpus, hasGPUs := math.NaN(), math.NaN(), 0.0, false
	for i := range q.Accounts {
		a := &q.Accounts[i]
		free := 1 - usedAfter(a, q.Takes.Of(a.Resource))
		switch {
		case a.Resource == bourse.ResourceCPU:
			cpu = free
		case a.Resource == bourse.ResourceMemory:
			memory = free
		case a.Resource.IsGPU() && a.Total > 0:
			if hasGPUs = true; free > gpus { // an invalid account counts as fully used
				gpus = free
			}
		}
	}
	if hasGPUs {
		return max(0, gpus-min(cpu, memory))
	}
	return math.Abs(cpu - memory)
}

// positionOf returns a worker's position, a number from 0 to 1. Workers and brokers have fixed random places on a circle.
// The position is the distance from the broker to the worker, relative to the circumference, so all brokers fill workers
// in the same sequence, but begin at different workers.
func positionOf(id bourse.WorkerID, start uint64) float64 {
	return float64(xxhash.Sum64String(string(id))-start) / math.MaxUint64
}
