package market

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// once places an order whose id the caller chose: it may be a repetition, and
// another broker may be placing it at this moment (invariant 7).
//
// First every candidate of every choice is asked if it has filled it;
// a silent one is asked twice. Then it is placed as any other. Then all are
// asked again, and if several have it filled, all but the oldest are canceled:
// the one created first by its worker's clock, for equal times the smaller
// worker id.
//
// Why brokers agree. A broker asks again after its own fill is durable. Of two
// fills, the broker of the later one therefore sees both (or one that is gone
// already, canceled by a broker that saw both). Age and worker id are in the
// machines' records, so every broker that sees two fills picks the same loser, and
// a cancellation goes to one worker and cannot touch the winner. The oldest of
// all is never the loser, so one remains. It is nearly always also the one that was
// returned first: a broker whose second round found no other has the older
// fill, as far as clocks agree and recording a machine takes no time.
//
// A worker that is silent in the second round may hold another fill; Run asks
// it until it answers and then does the same. What remains open: a caller that
// leaves one broker while it asks another may find the order canceled by the
// first, a broker that ends between its fill and its second round leaves a
// fill which only a repetition or another broker's Run finds, and so does a
// worker that one broker's directory does not know.
//
// A claim of an earlier try may still be in flight, from a broker that has ended,
// when all have been asked. A worker that has been asked by a later try refuses
// it (bourse.Options.Try).
//
// A worker where an earlier try was canceled, without its knowing yet, counts
// as one that refuses: see refuseVoided.
func (t *trade) once(ctx context.Context) (*bourse.Fill, error) {
	here, absent := t.x.cfg.Directory.All() // of one moment: a worker that comes or goes is asked, or waited for
	members, ends := candidates(t.order, taking(here), t.order.Regions...)
	members = append(members, t.leaving(here)...) // behind the last choice: asked, and never claimed
	t.since = t.x.ahead.now()
	asked := time.Now()
	quotes := t.ask(ctx, members)
	t.askSilent(ctx, members, quotes)
	mute := mute(members, quotes) // nonsense is an answer
	lo := 0
	for k, hi := range ends {
		for i := lo; i < hi; i++ {
			vet(&quotes[i], &members[i], t.order, t.order.Regions[k])
		}
		lo = hi
	}
	t.refuseLeaving(members[lo:], quotes[lo:])
	t.x.cache.hear(&t.shape, asked, members, quotes)
	t.refuseVoided(ctx, members, quotes)
	if fill := t.filledBefore(ctx, members, quotes); fill != nil {
		t.decision.Rounds = append(t.decision.Rounds, bourse.Round{
			Regions: slices.Concat(t.order.Regions...), Candidates: len(members), Asked: len(members),
		})
		if fill.Task != nil && !t.quoteOnly {
			return t.rejoin(ctx, members, fill)
		}
		return fill, nil
	}
	if err := t.mayBeFilled(ctx, mute, absent); err != nil {
		return nil, err
	}
	if err := t.voidLost(ctx, absent); err != nil {
		return nil, err
	}
	lo = 0
	for k, hi := range ends {
		if err := t.over(ctx); err != nil {
			return nil, err
		}
		t.decision.Rounds = append(t.decision.Rounds, bourse.Round{Regions: t.order.Regions[k], Candidates: hi - lo, Asked: hi - lo})
		fill, err := t.trade(ctx, members[lo:hi], quotes[lo:hi])
		if err != nil {
			return nil, err
		}
		if fill != nil && t.order.Kind() != bourse.KindTask {
			return t.confirm(ctx, fill, members)
		}
		if fill != nil {
			return fill, nil
		}
		lo = hi
	}
	return nil, nil
}

// askSilent asks those once more who did not answer.
func (t *trade) askSilent(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) {
	var again []bourse.Member
	var index []int
	for i := range quotes {
		if silent(&quotes[i]) {
			again, index = append(again, members[i]), append(index, i)
		}
	}
	if len(again) == 0 {
		return
	}
	for j, q := range t.ask(ctx, again) {
		quotes[index[j]] = q
	}
}

// filledBefore returns the oldest among the quotes' fills of the order, and
// cancels the others.
func (t *trade) filledBefore(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) *bourse.Fill {
	var best *bourse.Fill
	for i := range quotes {
		if f := quotes[i].Fill(); f != nil && (best == nil || older(f, best)) {
			best = f
		}
	}
	if best == nil {
		return nil
	}
	if !t.quoteOnly {
		t.void(ctx, filledElsewhere(members, quotes, best.Sale().Worker))
	}
	return best
}

// older reports whether a is kept rather than b, which fills the same
// order.
func older(a, b *bourse.Fill) bool {
	one, other := a.Sale(), b.Sale()
	if c := one.At.Compare(other.At); c != 0 {
		return c < 0
	}
	return one.Worker < other.Worker
}

func filledElsewhere(members []bourse.Member, quotes []bourse.Quote, but bourse.WorkerID) []*bourse.Member {
	var out []*bourse.Member
	for i := range quotes {
		if quotes[i].Fill() != nil && members[i].ID != but {
			out = append(out, &members[i])
		}
	}
	return out
}

// confirm asks all candidates again after a fill and returns the fill that stays.
func (t *trade) confirm(ctx context.Context, fill *bourse.Fill, members []bourse.Member) (*bourse.Fill, error) {
	holder := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == fill.Sale().Worker })
	keeper := members[holder]
	others := slices.DeleteFunc(members, func(m bourse.Member) bool {
		return m.ID == keeper.ID || slices.Contains(t.voided, m.ID)
	})
	if len(others) == 0 {
		return fill, nil
	}
	quotes := t.ask(ctx, others)
	kept, keptAt := fill, keeper
	for i := range quotes {
		vet(&quotes[i], &others[i], t.order, nil)
		if f := quotes[i].Fill(); f != nil && older(f, kept) {
			kept, keptAt = f, others[i]
		}
	}
	undo := filledElsewhere(others, quotes, keptAt.ID)
	if err := t.over(ctx); bourse.CodeOf(err) == bourse.CodeCanceled || keptAt.ID != keeper.ID {
		undo = append(undo, &keeper)
	}
	t.void(ctx, undo)
	if err := t.over(ctx); bourse.CodeOf(err) == bourse.CodeCanceled {
		return nil, err
	}
	for i := range quotes {
		if silent(&quotes[i]) {
			t.x.voids.add(void{order: t.order.ID, at: others[i], rival: &rival{t.order, kept, keptAt}}, errSilent)
		}
	}
	if keptAt.ID != keeper.ID {
		t.overtaken(&keeper, keptAt.ID)
	}
	return kept, nil
}

// overtaken corrects the record of a claim that was filled, and then canceled
// for an older fill.
func (t *trade) overtaken(loser *bourse.Member, by bourse.WorkerID) {
	claims := t.present().Claims
	for i := range claims {
		if claims[i].Worker == loser.ID {
			claims[i].Refusal = no(loser, bourse.RefusedCanceled, "worker "+string(by)+" had filled the order before; canceled there")
		}
	}
}
