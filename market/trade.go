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

// trade is one order in the exchange. One goroutine works on
// it.
type trade struct {
	x         *Exchange
	order     *bourse.Order
	shape     shape
	deadline  time.Time
	rng       *rand.Rand
	quoteOnly bool

	decision bourse.Decision
	noes     tally
	voided   []bourse.WorkerID              // where it was canceled, or will be
	unsure   error                          // of a task that a worker may have begun: no other is to begin it
	claim    bourse.Claim                   // sent to workers; made at the first claim
	at       *atomic.Pointer[bourse.Member] // where to say which worker is claimed; may be nil

	since  uint64  // the last choice of others when its quotes were asked for; see ahead
	chosen *choice // its own; nil before it is ranked, and of what is not spread
}

func (x *Exchange) newTrade(order *bourse.Order, began time.Time) *trade {
	return &trade{
		x: x, order: order, shape: shapeOf(order), deadline: began.Add(order.Deadline()), rng: x.chance.rng(),
		decision: bourse.Decision{Order: order.ID, Chosen: order.Chosen, App: order.App.Name, AppID: order.App.ID, Regions: order.Regions, At: began},
	}
}

// place returns a fill or an error, never both nil except for quoteOnly. ctx ends
// when the caller leaves or the work must end; only then is its Err looked at.
func (t *trade) place(ctx context.Context) (*bourse.Fill, error) {
	try := t.eachChoice
	if t.order.Named {
		try = t.once
	}
	fill, err := try(ctx)
	switch {
	case errors.Is(err, errQuoted):
		return nil, nil
	case fill != nil || err != nil:
		return fill, err
	}
	if t.noes.heard() {
		return nil, t.noes.err(t.order, t.decision.Rounds)
	}
	return nil, t.errNoOne()
}

// errQuoted ends a trade that was to go no further.
var errQuoted = errors.New("quoted")

// eachChoice tries the choices in the order of the caller's preference
// (invariant 3).
func (t *trade) eachChoice(ctx context.Context) (*bourse.Fill, error) {
	for _, choice := range t.order.Regions {
		if fill, err := t.choice(ctx, choice); fill != nil || err != nil {
			return fill, err
		}
	}
	return nil, nil
}

// choice asks all candidates of a choice, or a sample of many and the rest
// only when those have all refused.
func (t *trade) choice(ctx context.Context, choice bourse.Choice) (*bourse.Fill, error) {
	members, _ := candidates(t.order, t.x.cfg.Directory.Candidates, choice)
	if len(t.voided) > 0 { // a hint that changed meanwhile names a worker again: it must not be filled there
		members = slices.DeleteFunc(members, func(m bourse.Member) bool { return slices.Contains(t.voided, m.ID) })
	}
	known := len(members)
	if known <= t.x.cfg.SampleAbove {
		return t.round(ctx, bourse.Round{Regions: choice, Candidates: known, Asked: known}, members)
	}
	d := min(known, max(t.x.cfg.Sample, 2*t.order.Race))
	sample(members, needs(t.order), d, t.rng)
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

// round claims among members, all of one choice: the best by their quotes
// in the cache, or else the willing in rank order.
func (t *trade) round(ctx context.Context, round bourse.Round, members []bourse.Member) (*bourse.Fill, error) {
	if err := t.over(ctx); err != nil {
		return nil, err
	}
	fill, members := t.unasked(ctx, round, members)
	if fill != nil {
		return fill, nil
	}
	if err := t.over(ctx); err != nil { // a claim may have taken its time
		return nil, err
	}
	round.Asked = len(members)
	t.decision.Rounds = append(t.decision.Rounds, round)
	if len(members) == 0 {
		return nil, nil
	}
	if len(members) == 1 && !t.quoteOnly && !t.asksAboutImage() {
		// There is nothing to choose, and a claim is checked against the
		// ledger anyway: the quote would cost a round trip and decide nothing.
		return t.claims(ctx, members, []Ranked{{}})
	}
	t.since = t.x.ahead.now()
	asked := time.Now()
	quotes := t.ask(ctx, members)
	for i := range quotes {
		vet(&quotes[i], &members[i], t.order, round.Regions)
	}
	t.x.cache.hear(&t.shape, asked, members, quotes)
	return t.trade(ctx, members, quotes)
}

// trade takes the quotes of the present round, vetted and of the same index as
// members, and goes on with them.
func (t *trade) trade(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) (*bourse.Fill, error) {
	for i := range quotes {
		if r := quotes[i].Refusal; r != nil {
			t.refused(*r)
		}
	}
	if fill := t.filledBefore(ctx, members, quotes); fill != nil {
		return fill, nil
	}
	if err := t.noes.final(t.order); err != nil {
		return nil, err
	}
	ranked := t.rank(members, quotes, t.x.cfg.QuoteWithin)
	ranked = t.pullable(ctx, members, ranked)
	if err := t.noes.final(t.order); err != nil {
		return nil, err
	}
	if t.quoteOnly && len(ranked) > 0 {
		return nil, errQuoted
	}
	return t.claims(ctx, members, ranked)
}

// rank ranks the quotes of members, of the same index. What other orders have chosen since
// they were asked, or for so long before, counts as machines.
func (t *trade) rank(members []bourse.Member, quotes []bourse.Quote, slack time.Duration) []Ranked {
	began := time.Now()
	scorers := newScorers(t.order, &t.x.cfg.Curves)
	rank := func() []Ranked {
		ranked := scorers.rank(quotes, t.rng, make([]Ranked, 0, len(quotes)))
		switch {
		case t.order.Named && t.order.Kind() == bourse.KindTask:
			byOrder(t.order.ID, quotes, ranked)
		case t.order.Reservation != "":
			heldFirst(ranked, quotes)
		case len(t.order.Config.Standbys) > 0:
			apart(t.order, members, ranked)
		}
		return ranked
	}
	var ranked []Ranked
	if kind := t.order.Kind(); t.quoteOnly || kind != bourse.KindMachine && kind != bourse.KindHold {
		ranked = rank()
	} else {
		t.unchoose("")
		t.succeed(members, quotes)
		ranked, t.chosen = t.x.ahead.choose(t.order.App.Ref(), t.since, slack, quotes, rank)
	}
	round := t.present()
	round.Ranked = make([]bourse.Ranking, min(len(ranked), bourse.MaxRecorded))
	for i := range round.Ranked {
		q := &quotes[ranked[i].Quote]
		round.Ranked[i] = bourse.Ranking{
			Worker: q.Worker, Region: q.Region, Score: ranked[i].Score, Parts: scorers.of(q.Region).explain(q),
		}
	}
	t.decision.Times.Rank += time.Since(began)
	return ranked
}

// succeed leaves out of the count, among which the order's machine is spread, the one whose place
// it takes: that goes.
func (t *trade) succeed(members []bourse.Member, quotes []bourse.Quote) {
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

// unchoose notes that the order was filled at a worker, "" for none.
func (t *trade) unchoose(at bourse.WorkerID) {
	if t.chosen != nil {
		t.x.ahead.end(t.chosen, at)
		t.chosen = nil
	}
}

// apart moves workers to the end, in their order, that have a machine which the order's is to stand by for: it
// would be lost with it.
func apart(order *bourse.Order, members []bourse.Member, ranked []Ranked) {
	has := func(r Ranked) int {
		if slices.ContainsFunc(order.Config.Standbys, func(id bourse.MachineID) bool { return id.Tag() == members[r.Quote].Tag }) {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(ranked, func(a, b Ranked) int { return has(a) - has(b) })
}

// over returns the error of an order whose caller has left or whose time is up.
func (t *trade) over(ctx context.Context) error {
	switch err := ctx.Err(); {
	case t.unsure != nil && !errors.Is(err, context.Canceled):
		return t.unsure
	case err == nil:
		return nil
	case errors.Is(err, context.DeadlineExceeded):
		return bourse.Errorf(bourse.CodeTimeout, "the order was not filled within %s%s", t.order.Deadline(), t.noes.summary(t.decision.Rounds))
	default:
		return errLeft(err)
	}
}

// errLeft is the error of a caller who does not wait for it.
func errLeft(cause error) error {
	return bourse.Errorf(bourse.CodeCanceled, "the caller left before the order was filled: %w", cause)
}
