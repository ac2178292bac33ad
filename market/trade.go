package market

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// trade is the state of one order that is being placed or quoted. It must not be used concurrently.
type trade struct {
	exchange  *Exchange
	order     *bourse.Order
	shape     shape
	deadline  time.Time
	rng       *rand.Rand
	quoteOnly bool
	policies  *Policies // the policies when the order arrived; they do not change while it is being placed
	compared  bool      // whether the order was added to the comparisons with shadow policies

	decision bourse.Decision
	refusals refusalCounts
	canceled []bourse.WorkerID              // workers on which the order was or will be canceled
	unknown  error                          // set if a worker may have filled the order; no other worker may fill it then
	claim    bourse.Claim                   // the claim that is sent to workers; set by the first claim
	at       *atomic.Pointer[bourse.Member] // records the worker that is being claimed; may be nil

	since uint64 // number of the latest pick when the quotes were requested; see recentPicks
	pick  *pick  // this order's pick; nil before the ranking, and for kinds of orders that are not spread
}

func (x *Exchange) newTrade(order *bourse.Order, began time.Time) *trade {
	return &trade{
		exchange: x, order: order, shape: shapeOf(order), deadline: began.Add(order.Deadline()), rng: x.rngSource.rng(), policies: x.policiesFor(order),
		decision: bourse.Decision{Order: order.ID, ChosenID: order.ChosenID, App: order.App.Name, AppID: order.App.ID, Regions: order.Regions, At: began},
	}
}

// place returns a fill or an error. If quoteOnly is set, both may be nil. ctx is done when the
// caller disconnects or the soft deadline passes.
func (t *trade) place(ctx context.Context) (*bourse.Fill, error) {
	try := t.eachChoice
	if t.order.HasChosenID {
		try = t.placeOnce
	}
	fill, err := try(ctx)
	switch {
	case errors.Is(err, errQuoted):
		return nil, nil
	case fill != nil || err != nil:
		return fill, err
	}
	if t.refusals.anyAnswer() {
		return nil, t.refusals.err(t.order, t.decision.Rounds)
	}
	return nil, t.errNoWorker()
}

// errQuoted ends a trade that was started only to obtain a quote.
var errQuoted = errors.New("quoted")

// eachChoice tries the choices of regions in the caller's order of preference (invariant 3).
func (t *trade) eachChoice(ctx context.Context) (*bourse.Fill, error) {
	for _, choice := range t.order.Regions {
		if fill, err := t.choice(ctx, choice); fill != nil || err != nil {
			return fill, err
		}
	}
	return nil, nil
}

// choice tries to fill the order on one choice's candidates. If there are many, it first asks only a sample of them. If
// none of these fills the order, it asks the rest.
func (t *trade) choice(ctx context.Context, choice bourse.Choice) (*bourse.Fill, error) {
	members, _ := candidates(t.order, t.exchange.cfg.Directory.Candidates, choice)
	if len(t.canceled) > 0 { // a worker on which the order was canceled must not fill it, even if the directory lists the worker again
		members = slices.DeleteFunc(members, func(m bourse.Member) bool { return slices.Contains(t.canceled, m.ID) })
	}
	known := len(members)
	d := max(t.exchange.cfg.Sample, 2*t.order.Race)
	if known <= d {
		return t.round(ctx, bourse.Round{Regions: choice, Candidates: known, Asked: known}, members)
	}
	Sample(members, needs(t.order), d, t.rng)
	for _, part := range [][]bourse.Member{members[:d], members[d:]} {
		if len(part) == 0 {
			break
		}
		fill, err := t.round(ctx, bourse.Round{Regions: choice, Candidates: known, Asked: len(part)}, part)
		if fill != nil || err != nil {
			return fill, err
		}
	}
	return nil, nil
}

// round claims the order on members, which all belong to the same choice. It first tries the
// member that is best according to cached quotes. If that fails, it requests quotes and tries the
// willing members, best first.
func (t *trade) round(ctx context.Context, round bourse.Round, members []bourse.Member) (*bourse.Fill, error) {
	if err := t.checkEnded(ctx); err != nil {
		return nil, err
	}
	fill, members := t.claimCached(ctx, round, members)
	if fill != nil {
		return fill, nil
	}
	if err := t.checkEnded(ctx); err != nil { // the claim may have taken a long time
		return nil, err
	}
	round.Asked = len(members)
	t.decision.Rounds = append(t.decision.Rounds, round)
	if len(members) == 0 {
		return nil, nil
	}
	if len(members) == 1 && !t.quoteOnly && !t.asksAboutImage() {
		// There is only one candidate, and it checks a claim against its ledger anyway. A quote
		// would cost a round trip without changing the result.
		return t.claimRanked(ctx, members, []Ranked{{}})
	}
	t.since = t.exchange.recentPicks.now()
	asked := time.Now()
	quotes := t.ask(ctx, members)
	for i := range quotes {
		checkQuote(&quotes[i], &members[i], t.order, round.Regions)
	}
	t.exchange.cache.store(&t.shape, asked, members, quotes)
	return t.trade(ctx, members, quotes)
}

// trade continues the current round with the members' checked quotes, which are in the order of
// members. It records refusals, ranks the quotes, and claims the order on the best workers.
func (t *trade) trade(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) (*bourse.Fill, error) {
	for i := range quotes {
		if r := quotes[i].Refusal; r != nil {
			t.refused(*r)
		}
	}
	if fill := t.filledBefore(ctx, members, quotes); fill != nil {
		return fill, nil
	}
	if err := t.refusals.final(t.order); err != nil {
		return nil, err
	}
	ranked := t.rank(members, quotes, t.exchange.cfg.QuoteTimeout)
	ranked = t.pullable(ctx, members, ranked)
	if err := t.refusals.final(t.order); err != nil {
		return nil, err
	}
	if t.quoteOnly && len(ranked) > 0 {
		return nil, errQuoted
	}
	return t.claimRanked(ctx, members, ranked)
}

// rank ranks quotes, which must be in the order of members. It takes into account that other orders may have picked the
// same workers: the worker counts as having one more machine for each pick that its quote may not reflect. Its quote
// may not reflect a pick that was made after the quotes were requested, or one that was made at most slack ago and
// whose order is still in progress.
func (t *trade) rank(members []bourse.Member, quotes []bourse.Quote, slack time.Duration) []Ranked {
	began := time.Now()
	scorers := newScorers(t.order, &t.policies.curves, t.exchange.cfg.Name)
	rank := func() []Ranked {
		ranked := scorers.rank(quotes, t.rng, make([]Ranked, 0, len(quotes)))
		switch {
		case t.order.HasChosenID && t.order.Kind() == bourse.KindTask:
			sortByHash(t.order.ID, quotes, ranked)
		case t.order.Reservation != "":
			preferHolds(ranked, quotes)
		case len(t.order.Config.Standbys) > 0:
			standbysLast(t.order, members, ranked)
		}
		return ranked
	}
	var ranked []Ranked
	if kind := t.order.Kind(); t.quoteOnly || kind != bourse.KindMachine && kind != bourse.KindHold {
		ranked = rank()
	} else {
		t.endPick("")
		t.discountReplaced(members, quotes)
		ranked, t.pick = t.exchange.recentPicks.pick(t.order.App.Ref(), t.since, slack, quotes, rank)
	}
	round := t.currentRound()
	round.Ranked = make([]bourse.Ranking, min(len(ranked), bourse.MaxRecorded))
	for i := range round.Ranked {
		q := &quotes[ranked[i].Quote]
		round.Ranked[i] = bourse.Ranking{
			Worker: q.Worker, Region: q.Region, Score: ranked[i].Score, Parts: scorers.of(q.Region).explain(q),
			Policy: nameOf(t.policies.byRegion, q.Region),
		}
	}
	t.compare(quotes, ranked)
	t.decision.Times.Rank += time.Since(began)
	return ranked
}

// discountReplaced subtracts the machine that the order replaces from the machine count in its worker's quote. The
// replaced machine will be destroyed, so it must not affect how the app's machines are spread.
func (t *trade) discountReplaced(members []bourse.Member, quotes []bourse.Quote) {
	former := bourse.MachineID(t.order.Config.Metadata[bourse.MetadataReplaces])
	if former.Validate() != nil {
		return
	}
	for i := range quotes {
		if members[i].Tag == former.Tag() {
			quotes[i].AppMachines = max(0, quotes[i].AppMachines-1)
		}
	}
}

// endPick records which worker has filled the order. The worker is "" if the order was not filled.
func (t *trade) endPick(at bourse.WorkerID) {
	if t.pick != nil {
		t.exchange.recentPicks.end(t.pick, at)
		t.pick = nil
	}
}

// standbysLast moves the workers that run a primary machine of the order's standby to the end,
// because if the standby ran on such a worker, losing the worker would mean losing both machines.
// The sort is stable.
func standbysLast(order *bourse.Order, members []bourse.Member, ranked []Ranked) {
	has := func(r Ranked) int {
		if slices.ContainsFunc(order.Config.Standbys, func(id bourse.MachineID) bool { return id.Tag() == members[r.Quote].Tag }) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(ranked, func(a, b Ranked) int { return has(a) - has(b) })
}

// checkEnded returns an error if the order must not continue: its caller has disconnected, its time is up, or a worker
// may have filled it.
func (t *trade) checkEnded(ctx context.Context) error {
	switch err := ctx.Err(); {
	case t.unknown != nil && !errors.Is(err, context.Canceled):
		return t.unknown
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return bourse.Errorf(bourse.CodeTimeout, "order not filled within %s%s", t.order.Deadline(), t.refusals.summary(t.decision.Rounds))
	default:
		return errCallerGone(err)
	}
}

// errCallerGone returns the error for a call whose caller has disconnected.
func errCallerGone(cause error) error {
	return bourse.Errorf(bourse.CodeCanceled, "the caller disconnected before the order was filled: %w", cause)
}
