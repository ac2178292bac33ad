package market

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

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
// of its arguments. The source rng is required. It is used only to break ties, so that brokers do
// not all claim the same one of several equal workers. Each quote is scored with the curves of its
// region. An invalid number in a quote scores 0. If dst has enough capacity, Rank does not allocate
// for each quote.
func Rank(order *bourse.Order, quotes []bourse.Quote, curves *Curves, rng *rand.Rand, dst []Ranked) []Ranked {
	scorers := newScorers(order, curves)
	return scorers.rank(quotes, rng, dst)
}

// Explain returns the parts of the score that Rank computes for a quote.
func Explain(order *bourse.Order, q *bourse.Quote, curves *Curves) []bourse.ScorePart {
	scorers := newScorers(order, curves)
	return scorers.of(q.Region).explain(q)
}

// scorers contains a scorer for each curve set that has been used so far.
type scorers struct {
	order   *bourse.Order
	regions map[bourse.Region]*CurveSet
	cached  []setScorer // the first one is the scorer for the default set
}

type setScorer struct {
	set *CurveSet
	scorer
}

func newScorers(order *bourse.Order, curves *Curves) scorers {
	set := curves.Default
	if set == nil {
		set = DefaultCurves()
	}
	return scorers{order, curves.Regions, []setScorer{{set, newScorer(order, set)}}}
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
	s.cached = append(s.cached, setScorer{set, newScorer(s.order, set)})
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
type scorer struct{ terms []term }

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
)

// newScorer returns a scorer whose terms depend only on the order, not on the quotes, so that all quotes are scored by
// the same terms. A quote that lacks a number scores 0 for that term.
func newScorer(order *bourse.Order, set *CurveSet) scorer {
	terms := make([]term, 0, 8)
	for _, r := range scoredResources(order) {
		curve := set.of(r)
		if order.Warm() { // do not pack calls to warm machines, because they end sooner on a less busy worker
			curve.Points = emptiestFirst
		}
		terms = append(terms, term{kind: utilization, name: string(r), resource: r, curve: curve})
	}
	terms = append(terms,
		term{kind: image, name: "image", curve: set.Image, scale: set.PullRate},
		term{kind: spread, name: "spread", curve: set.Spread},
		term{kind: load, name: "load", curve: set.Load},
	)
	terms = slices.DeleteFunc(terms, func(t term) bool { return !(t.curve.Weight > 0) })
	total := 0.0
	for _, t := range terms {
		total += t.curve.Weight
	}
	for i := range terms {
		terms[i].share = terms[i].curve.Weight / total
	}
	return scorer{terms}
}

// emptiestFirst is the curve for the resources of a call to a warm machine. Lower utilization
// scores higher.
var emptiestFirst = []Point{{0, 1}, {1, 0}}

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
		sum += t.curve.At(t.value(q)) * t.share
	}
	return sum
}

func (s *scorer) explain(q *bourse.Quote) []bourse.ScorePart {
	parts := make([]bourse.ScorePart, len(s.terms))
	for i := range s.terms {
		t := &s.terms[i]
		x := t.value(q)
		parts[i] = bourse.ScorePart{Name: t.name, Value: x, Score: t.curve.At(x) * t.share}
		if math.IsNaN(x) { // JSON cannot represent NaN
			parts[i].Value = -1
		}
	}
	return parts
}

// value returns the quantity that the term measures in a quote, or NaN if the quantity is
// invalid.
func (t *term) value(q *bourse.Quote) float64 {
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
	takes := q.Takes.Of(r)
	for i := range q.Accounts {
		a := &q.Accounts[i]
		if a.Resource != r {
			continue
		}
		sane := a.Total > 0 && a.Total <= bourse.MaxAmount && a.Used >= 0 && a.Used <= a.Total && takes >= 0 && takes <= a.Total-a.Used
		if !sane {
			break
		}
		return float64(a.Used+takes) / float64(a.Total)
	}
	return math.NaN()
}
