package market

import (
	"cmp"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
)

// Comparison summarizes how a shadow policy differs from the policy that ranks a region's workers.
// An order counts if at least two workers were willing to fill it.
type Comparison struct {
	Region    bourse.Region // the region of the workers that were ranked first
	Policy    string        // name@version of the shadow policy
	Orders    int           // orders compared
	Differing int           // orders for which the shadow policy scores another worker higher
	Gain      float64       // mean difference between its scores of the two workers, over all compared orders
}

// comparisons contains the comparisons since this exchange was created, or since the shadow policy
// was set.
type comparisons struct {
	mu sync.Mutex
	of map[bourse.Region]*Comparison // Gain is the sum
}

// Comparisons returns this exchange's comparisons with the current shadow policies, by region.
func (x *Exchange) Comparisons() []Comparison {
	policies := x.cfg.Policies()
	c := &x.comparisons
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Comparison
	for r, sum := range c.of {
		if sum.Policy == nameOf(policies.shadowByRegion, r) {
			one := *sum
			one.Gain /= float64(one.Orders)
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Comparison) int { return cmp.Compare(a.Region, b.Region) })
	return out
}

// add adds an order whose best worker is in a region.
func (c *comparisons) add(r bourse.Region, s *bourse.Shadow) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[bourse.Region]*Comparison{}
	}
	sum := c.of[r]
	if sum == nil || sum.Policy != s.Policy { // another policy begins at zero
		sum = &Comparison{Region: r, Policy: s.Policy}
		c.of[r] = sum
	}
	sum.Orders++
	sum.Gain += s.Gain
	if s.Gain > 0 {
		sum.Differing++
	}
}

// policiesFor returns the policies for an order. A call to a warm machine is not a placement, so its
// workers are always ranked by the default curves.
func (x *Exchange) policiesFor(order *bourse.Order) *Policies {
	if order.Warm() {
		return x.builtIn
	}
	return x.cfg.Policies()
}

// compare compares a ranking with that of the shadow policy of the best worker's region. Rankings that
// scores alone do not determine are not compared. The comparison uses no randomness, so it does not
// affect which worker is chosen.
func (t *trade) compare(quotes []bourse.Quote, ranked []Ranked) {
	if len(ranked) == 0 || !t.rankedByScore() {
		return
	}
	first := &quotes[ranked[0].Quote]
	name := nameOf(t.policies.shadowByRegion, first.Region)
	if name == "" {
		return
	}
	scorers := newScorers(t.order, &t.policies.shadowCurves)
	score := func(q *bourse.Quote) float64 { return scorers.of(q.Region).score(q) }
	actual := score(first)
	best, most := first, actual
	for _, r := range ranked[1:] {
		if s := score(&quotes[r.Quote]); s > most {
			best, most = &quotes[r.Quote], s
		}
	}
	s := &bourse.Shadow{Policy: name, Worker: best.Worker, Region: best.Region, Score: most, Gain: most - actual}
	t.currentRound().Shadow = s
	if !t.compared && !t.quoteOnly && len(ranked) > 1 {
		t.compared = true
		t.exchange.comparisons.add(first.Region, s)
	}
}

// rankedByScore reports whether only scores determine how workers are ranked for the order.
func (t *trade) rankedByScore() bool {
	byHash := t.order.HasChosenID && t.order.Kind() == bourse.KindTask
	return !byHash && t.order.Reservation == "" && len(t.order.Config.Standbys) == 0
}
