package market

import (
	"cmp"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
)

// Comparison summarizes how a shadow policy differs from the policy that ranks a region's workers. Only orders that
// at least two workers were willing to fill are included.
type Comparison struct {
	Region    bourse.Region // the region of the workers that were ranked first
	Ranking   string        // name@version of the policy that ranked the workers; "" if the built-in curves did
	Policy    string        // name@version of the shadow policy
	Orders    int           // orders compared
	Differing int           // orders for which the shadow policy scores another worker higher
	Gain      float64       // mean difference between its scores of the two workers, over all compared orders
}

// comparisons contains one comparison for each region. Each covers the orders that this exchange has placed since the
// region's policy or shadow policy was last replaced.
type comparisons struct {
	mu sync.Mutex
	of map[bourse.Region]*Comparison // here, Gain is a sum instead of a mean
}

// Comparisons compares the current policies with the current shadow policies, based on this exchange's orders. The
// result is sorted by region.
func (x *Exchange) Comparisons() []Comparison {
	policies := x.cfg.Policies()
	c := &x.comparisons
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []Comparison
	for _, sum := range c.of {
		if policies.matches(sum) {
			one := *sum
			one.Gain /= float64(one.Orders)
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b Comparison) int { return cmp.Compare(a.Region, b.Region) })
	return out
}

// matches reports whether c is a comparison of its region's current policies.
func (p *Policies) matches(c *Comparison) bool {
	return c.Ranking == nameOf(p.byRegion, c.Region) && c.Policy == nameOf(p.shadowByRegion, c.Region)
}

// add adds the result for one order to its region's comparison. It ignores an order whose policies have been replaced
// in the meantime.
func (c *comparisons) add(one *Comparison, current *Policies) {
	if !current.matches(one) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of == nil {
		c.of = map[bourse.Region]*Comparison{}
	}
	sum := c.of[one.Region]
	if sum == nil || sum.Ranking != one.Ranking || sum.Policy != one.Policy { // the policies have changed, so start at zero
		sum = &Comparison{Region: one.Region, Ranking: one.Ranking, Policy: one.Policy}
		c.of[one.Region] = sum
	}
	sum.Orders += one.Orders
	sum.Differing += one.Differing
	sum.Gain += one.Gain
}

// policiesFor returns the policies for an order. A call to a warm machine is not a placement, so its
// workers are always ranked by the default curves.
func (x *Exchange) policiesFor(order *bourse.Order) *Policies {
	if order.Warm() {
		return x.builtIn
	}
	return x.cfg.Policies()
}

// compare compares a ranking with the one that the shadow policy for the best worker's region would produce. It does
// nothing if the ranking does not depend on scores alone. The comparison uses no randomness, so it does not affect
// which worker is chosen.
func (t *trade) compare(quotes []bourse.Quote, ranked []Ranked) {
	if len(ranked) == 0 || !t.rankedByScore() {
		return
	}
	first := &quotes[ranked[0].Quote]
	name := nameOf(t.policies.shadowByRegion, first.Region)
	if name == "" {
		return
	}
	scorers := newScorers(t.order, &t.policies.shadowCurves, t.exchange.cfg.Name)
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
		one := Comparison{Region: first.Region, Ranking: nameOf(t.policies.byRegion, first.Region), Policy: name, Orders: 1, Gain: s.Gain}
		if s.Gain > 0 {
			one.Differing = 1
		}
		t.exchange.comparisons.add(&one, t.exchange.cfg.Policies())
	}
}

// rankedByScore reports whether the ranking of workers for the order depends on scores alone.
func (t *trade) rankedByScore() bool {
	byHash := t.order.HasChosenID && t.order.Kind() == bourse.KindTask
	return !byHash && t.order.Reservation == "" && len(t.order.Config.Standbys) == 0
}
