package market

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// placeOnce places an order whose ID the caller has chosen. The order may be a repeated one, and another broker may be
// placing it at the same moment (invariant 7).
//
// In the first round, all candidates of all choices are asked whether they have filled the order. A worker that does
// not answer is asked twice. If none has filled it, the order is placed like any other. After that, in the second
// round, all candidates are asked again. If several of them have filled the order, all fills except the oldest are
// canceled. The oldest fill is the one that was created first, according to its worker's clock. If the times are equal,
// the fill of the worker with the smaller ID counts as the oldest.
//
// All brokers agree on which fill remains, for the following reasons. A broker starts its second round once its own
// fill is durable. Therefore, if there are two fills, the broker of the later one sees both, unless another broker has
// already seen both and canceled one of them. The age of a fill and the worker's ID are recorded with the machine, so
// every broker that sees two fills cancels the same one. A cancellation goes to one worker, so it cannot affect the
// other fill. The oldest fill is never canceled, so one fill remains. It is nearly always also the fill that a caller
// received first. A broker that finds no other fill in its second round has the older fill, provided that clocks agree
// and recording a machine takes no time.
//
// A worker that does not answer in the second round may have another fill. Run keeps asking the worker until it
// answers, and then applies the same rule. Three cases remain in which the result may be wrong:
//
//   - A caller disconnects from one broker while it is asking another one. The first broker may
//     cancel the order.
//   - A broker stops between its fill and its second round. A second fill is then found only if the
//     order is repeated, or by Run on another broker.
//   - A worker that has filled the order is missing from one broker's directory. The consequence is the same as in the
//     previous case.
//
// After all workers have been asked, a claim from an earlier attempt may still arrive, sent by a broker that no
// longer exists. A worker that a later attempt has asked refuses such a claim (bourse.Options.Try).
//
// If an earlier attempt was canceled on a worker that has not received the cancellation yet, the worker is treated as
// if it refused (see refuseCanceled).
func (t *trade) placeOnce(ctx context.Context) (*bourse.Fill, error) {
	here, absent := t.exchange.cfg.Directory.All() // both lists reflect the same moment, so a worker that is joining or leaving is either asked or counts as absent
	members, ends := candidates(t.order, accepting(here), t.order.Regions...)
	members = append(members, t.leavingWorkers(here)...) // appended last, because they are asked but never claimed
	t.since = t.exchange.recentPicks.now()
	asked := time.Now()
	quotes := t.ask(ctx, members)
	t.retrySilent(ctx, members, quotes)
	unresponsive := unresponsive(members, quotes) // before checkQuote, so workers with invalid answers do not count as unresponsive
	lo := 0
	for k, hi := range ends {
		for i := lo; i < hi; i++ {
			checkQuote(&quotes[i], &members[i], t.order, t.order.Regions[k])
		}
		lo = hi
	}
	t.refuseLeaving(members[lo:], quotes[lo:])
	t.exchange.cache.store(&t.shape, asked, members, quotes)
	t.refuseCanceled(ctx, members, quotes)
	if fill := t.filledBefore(ctx, members, quotes); fill != nil {
		t.decision.Rounds = append(t.decision.Rounds, bourse.Round{
			Regions: slices.Concat(t.order.Regions...), Candidates: len(members), Asked: len(members),
		})
		if fill.Task != nil && !t.quoteOnly {
			return t.repeatTask(ctx, members, fill)
		}
		return fill, nil
	}
	if err := t.mayBeFilled(ctx, unresponsive, absent); err != nil {
		return nil, err
	}
	if err := t.cancelAbsent(ctx, absent); err != nil {
		return nil, err
	}
	lo = 0
	for k, hi := range ends {
		if err := t.checkEnded(ctx); err != nil {
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

// retrySilent requests quotes a second time from members that did not answer, and replaces their quotes.
func (t *trade) retrySilent(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) {
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

// filledBefore returns the oldest fill of the order among the quotes, or nil if there is none. It
// cancels the other fills.
func (t *trade) filledBefore(ctx context.Context, members []bourse.Member, quotes []bourse.Quote) *bourse.Fill {
	var best *bourse.Fill
	for i := range quotes {
		if f := quotes[i].Fill(); f != nil && (best == nil || precedes(f, best)) {
			best = f
		}
	}
	if best == nil {
		return nil
	}
	if !t.quoteOnly {
		t.cancelAll(ctx, otherFills(members, quotes, best.Summary().Worker))
	}
	return best
}

// precedes reports whether fill a takes precedence over fill b of the same order.
func precedes(a, b *bourse.Fill) bool {
	one, other := a.Summary(), b.Summary()
	if c := one.At.Compare(other.At); c != 0 {
		return c < 0
	}
	return one.Worker < other.Worker
}

func otherFills(members []bourse.Member, quotes []bourse.Quote, but bourse.WorkerID) []*bourse.Member {
	var out []*bourse.Member
	for i := range quotes {
		if quotes[i].Fill() != nil && members[i].ID != but {
			out = append(out, &members[i])
		}
	}
	return out
}

// confirm asks all candidates again after the order was filled. If it finds several fills, it
// cancels all except the oldest one. It returns the fill that remains.
func (t *trade) confirm(ctx context.Context, fill *bourse.Fill, members []bourse.Member) (*bourse.Fill, error) {
	holder := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == fill.Summary().Worker })
	keeper := members[holder]
	others := slices.DeleteFunc(members, func(m bourse.Member) bool {
		return m.ID == keeper.ID || slices.Contains(t.canceled, m.ID)
	})
	if len(others) == 0 {
		return fill, nil
	}
	quotes := t.ask(ctx, others)
	kept, keptAt := fill, keeper
	for i := range quotes {
		checkQuote(&quotes[i], &others[i], t.order, nil)
		if f := quotes[i].Fill(); f != nil && precedes(f, kept) {
			kept, keptAt = f, others[i]
		}
	}
	undo := otherFills(others, quotes, keptAt.ID)
	if err := t.checkEnded(ctx); bourse.CodeOf(err) == bourse.CodeCanceled || keptAt.ID != keeper.ID {
		undo = append(undo, &keeper)
	}
	t.cancelAll(ctx, undo)
	if err := t.checkEnded(ctx); bourse.CodeOf(err) == bourse.CodeCanceled {
		return nil, err
	}
	for i := range quotes {
		if silent(&quotes[i]) {
			t.exchange.cancels.add(pendingCancel{order: t.order.ID, at: others[i], competing: &competingFill{t.order, kept, keptAt}}, errNoAnswer)
		}
	}
	if keptAt.ID != keeper.ID {
		t.recordSuperseded(&keeper, keptAt.ID)
	}
	return kept, nil
}

// recordSuperseded corrects the record of a claim whose fill was canceled because there is an older
// fill.
func (t *trade) recordSuperseded(loser *bourse.Member, by bourse.WorkerID) {
	claims := t.currentRound().Claims
	for i := range claims {
		if claims[i].Worker == loser.ID {
			claims[i].Refusal = newRefusal(loser, bourse.RefusedCanceled, "worker "+string(by)+" had filled the order earlier, so the order was canceled there")
		}
	}
}
