package market

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// claimRanked claims the order on the ranked members, best first, until one of them fills it. If all of them refuse,
// it returns nil without an error.
func (t *trade) claimRanked(ctx context.Context, members []bourse.Member, ranked []Ranked) (*bourse.Fill, error) {
	for len(ranked) > 0 {
		if err := t.checkEnded(ctx); err != nil {
			return nil, err
		}
		n := min(max(1, t.order.Race), len(ranked))
		batch := make([]*bourse.Member, n)
		for i := range batch {
			batch[i] = &members[ranked[i].Quote]
		}
		ranked = ranked[n:]
		if fill := t.claimBatch(ctx, batch, len(ranked) > 0); fill != nil {
			return fill, nil
		}
		if err := t.refusals.final(t.order); err != nil {
			return nil, err
		}
	}
	return nil, t.checkEnded(ctx)
}

// claimBatch claims the order on all members of batch concurrently. It keeps the first fill. Before
// it returns, it cancels the order on every other worker that may have filled it. If more is set,
// the order can still be claimed on workers outside the batch, so the batch may use only half of the
// remaining time.
func (t *trade) claimBatch(ctx context.Context, batch []*bourse.Member, more bool) *bourse.Fill {
	began, work := time.Now(), ctx
	if deadline, ok := ctx.Deadline(); ok && more && t.order.Kind() != bourse.KindTask { // no other worker may run a task, even if the task hangs, so the claim gets all of the remaining time
		var cancel context.CancelFunc
		work, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	if t.at != nil {
		t.at.Store(batch[0])
	}
	if t.pick != nil {
		t.exchange.recentPicks.move(t.pick, batch[0].ID)
	}
	tries := make([]attempt, len(batch))
	if len(batch) == 1 {
		tries[0] = t.attempt(work, batch[0], t.claimRequest())
	} else {
		t.race(work, batch, tries)
	}
	fill := t.settle(ctx, batch, tries)
	t.addTimes(time.Since(began), fill)
	return fill
}

// attempt is the result of one claim. It contains either a fill or a refusal.
type attempt struct {
	fill    *bourse.Fill
	refusal *bourse.Refusal
	unknown bool // whether the worker may have filled the order, which must then be canceled there
	won     bool // whether the fill won the race and is kept
	took    time.Duration
}

// attempt claims the order on one worker. It does not modify t.
func (t *trade) attempt(ctx context.Context, m *bourse.Member, claim *bourse.Claim) attempt {
	began := time.Now()
	cached := t.exchange.cache.claiming(m.ID, &t.shape, began)
	fill, refusal, err := t.exchange.cfg.Trader.Claim(ctx, *m, claim)
	a := judgeClaim(fill, refusal, err, m, t.order, t.decision.Rounds[len(t.decision.Rounds)-1].Regions)
	t.exchange.cache.answered(m.ID, cached, &t.shape, a.fill != nil)
	a.took = time.Since(began)
	a.won = a.fill != nil
	return a
}

// judgeClaim interprets the answer to a claim. If the answer was lost or does not match the order, the worker may have
// filled the order, so judgeClaim marks the attempt's outcome as unknown.
func judgeClaim(fill *bourse.Fill, refusal *bourse.Refusal, err error, m *bourse.Member, order *bourse.Order, choice bourse.Choice) attempt {
	switch {
	case err != nil && bourse.CodeOf(err) == bourse.CodeUnavailable:
		return attempt{refusal: newRefusal(m, bourse.RefusedNoAnswer, "not reached: "+cut(bourse.MessageOf(err), maxDetail))}
	case err != nil && bourse.CodeOf(err) == bourse.CodeRateLimited:
		return attempt{refusal: newRefusal(m, bourse.RefusedNoAnswer, "overloaded: "+cut(bourse.MessageOf(err), maxDetail))}
	case err != nil:
		return attempt{unknown: true, refusal: newRefusal(m, bourse.RefusedLost, "the answer to the claim was lost, so the order was canceled there: "+cut(bourse.MessageOf(err), maxDetail))}
	case fill == nil && refusal != nil:
		return attempt{refusal: sanitize(refusal, m)}
	case fill == nil || refusal != nil || !matchesOrder(fill, order, m):
		return attempt{unknown: true, refusal: newRefusal(m, bourse.RefusedLost, "the answer to the claim was invalid, so the order was canceled there")}
	case !slices.Contains(choice, fill.Summary().Region): // invariant 3 must hold even if the hint is wrong
		return attempt{unknown: true, refusal: newRefusal(m, bourse.RefusedRegion, "the worker filled the order in region "+bourse.Quoted(string(fill.Summary().Region))+", so the order was canceled there")}
	}
	return attempt{fill: fill}
}

// settle evaluates the results of a batch of claims. It returns the winning fill if the caller is
// still waiting, cancels the order on every other worker that may have filled it, and records the
// claims.
func (t *trade) settle(ctx context.Context, batch []*bourse.Member, tries []attempt) *bourse.Fill {
	var kept *bourse.Fill
	var undo []*bourse.Member
	left := errors.Is(ctx.Err(), context.Canceled)
	won := slices.ContainsFunc(tries, func(a attempt) bool { return a.won })
	for i := range tries {
		a := &tries[i]
		switch {
		case a.won && !left:
			kept = a.fill
			continue
		case a.won:
			a.refusal = newRefusal(batch[i], bourse.RefusedCanceled, "the caller disconnected, so the order was canceled there")
		case a.fill != nil:
			a.refusal = newRefusal(batch[i], bourse.RefusedCanceled, "another worker was faster, so the order was canceled there")
		case !a.unknown && a.refusal.Reason == bourse.RefusedSuperseded:
			t.unknown = errSuperseded(t.order)
			continue
		case !a.unknown:
			continue
		case mustFillOnce(t.order) && !won && a.refusal.Reason == bourse.RefusedLost:
			if !t.cancelLost(ctx, batch[i]) {
				a.refusal = newRefusal(batch[i], bourse.RefusedLost, "the answer to the claim was lost; the worker may have filled the order")
			}
			continue
		case t.order.Kind() == bourse.KindTask && !left && a.refusal.Reason != bourse.RefusedLost:
			t.unknown = errUnknownTask(t.order, batch[i]) // the order is also canceled on the worker, because the answer does not match it
		case t.order.Kind() == bourse.KindTask && !left:
			t.unknown = errUnknownTask(t.order, batch[i])
			a.refusal = newRefusal(batch[i], bourse.RefusedLost, "the answer to the claim was lost; the worker may have started the task")
			continue
		}
		undo = append(undo, batch[i])
	}
	t.cancelAll(ctx, undo)
	for i := range tries {
		t.claimed(bourse.ClaimAttempt{Worker: batch[i].ID, Refusal: tries[i].refusal, Took: tries[i].took})
	}
	return kept
}

// defaultCancelTimeout is the time limit for one cancellation while the caller waits.
const defaultCancelTimeout = time.Second

// cancelTime returns the time limit for a cancellation that starts now.
func (t *trade) cancelTime() time.Duration {
	return min(defaultCancelTimeout, time.Until(t.deadline)/2)
}

// cancelAll cancels the order on all members concurrently, even if ctx is done. A cancellation that is not delivered in
// time is written to the CancellationStore, where the worker will find it, and is retried by Run. In the meantime, the
// order continues on other workers, because the caller needs a machine. A duplicate is destroyed once its worker is
// back.
func (t *trade) cancelAll(ctx context.Context, members []*bourse.Member) {
	if len(members) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cancelTime())
	defer cancel()
	cancelOne := func(m *bourse.Member) {
		if _, err := t.exchange.cfg.Trader.Cancel(ctx, *m, t.order.ID); err != nil {
			t.exchange.cancels.record(ctx, pendingCancel{order: t.order.ID, at: *m}, t.cancelTime(), err)
		}
	}
	for _, m := range members {
		t.canceled = append(t.canceled, m.ID)
	}
	if len(members) == 1 {
		cancelOne(members[0])
		return
	}
	var wg sync.WaitGroup
	for _, m := range members {
		wg.Go(func() { cancelOne(m) })
	}
	wg.Wait()
}

// addTimes adds the duration of a batch of claims to the decision's times. The time that the winner
// needed to start the machine is recorded separately.
func (t *trade) addTimes(took time.Duration, fill *bourse.Fill) {
	started := time.Duration(0)
	if fill != nil {
		started = min(max(0, fill.Started), took)
	}
	t.decision.Times.Start += started
	t.decision.Times.Claim += took - started
}
