package market

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// An unreachable worker has not refused the order. If it is the only candidate, the order fails as unavailable, not as
// refused. The worker may also have filled the order in an earlier attempt without the caller's knowledge. In that
// case, no other worker may fill the order, and the caller has to repeat the order until the worker returns or is
// considered permanently lost.

// absentCandidates returns the absent workers that might fill the order if they were reachable. They are in the order's
// regions, match the order's volume and reservation, and are not permanently lost.
func (t *trade) absentCandidates(all []bourse.Absence) []bourse.Absence {
	now := time.Now()
	var out []bourse.Absence
	for _, a := range all {
		if !a.Lost(now) && t.eligible(&a.Member) {
			out = append(out, a)
		}
	}
	return out
}

// eligible reports whether m is eligible for the order, considering only the order's regions,
// volume and reservation.
func (t *trade) eligible(m *bourse.Member) bool {
	pin := t.order.Pinned()
	return containsRegion(t.order.Regions, m.Region) && (pin == 0 || m.Tag == pin) && reserved(t.order, m)
}

// errNoWorker returns the error for an order that failed although no worker refused it: there were
// no candidates, or none of them could be reached.
func (t *trade) errNoWorker() error {
	var away []bourse.WorkerID
	here, absent := t.exchange.cfg.Directory.All()
	for _, a := range t.absentCandidates(absent) {
		away = append(away, a.ID)
	}
	for _, m := range here {
		if m.Leaving && t.eligible(&m) {
			away = append(away, m.ID)
		}
	}
	if len(away) == 0 {
		return t.refusals.err(t.order, t.decision.Rounds)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "none of the workers in %s can be reached now: %s", regions(t.decision.Rounds), list(away))
}

// list formats worker IDs for a message. It includes at most maxShown of them.
func list(ids []bourse.WorkerID) string {
	names := make([]string, min(len(ids), maxShown))
	for i := range names {
		names[i] = string(ids[i])
	}
	return strings.Join(more(names, len(ids)-maxShown), ", ")
}

// mayBeFilled returns CodeUnavailable if the order must not be filled now, because a worker that is absent or did not
// answer may already have filled it. Workers on which the order was canceled are ignored. On the first attempt to
// place the order, mayBeFilled returns nil, because no worker can have filled it yet.
func (t *trade) mayBeFilled(ctx context.Context, unresponsive []bourse.WorkerID, absent []bourse.Absence) error {
	if t.quoteOnly || !t.order.MayRepeat() || t.order.Kind() == bourse.KindHold {
		return nil
	}
	now := time.Now()
	away := unresponsive
	for _, a := range t.absentCandidates(absent) {
		if a.MayHaveFilled(t.order.ID, now) {
			away = append(away, a.ID)
		}
	}
	if len(away) == 0 {
		return nil
	}
	canceled, err := t.exchange.canceledOn(ctx, t.order)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "order %s: read earlier cancellations: %w", t.order.ID, err)
	}
	away = slices.DeleteFunc(away, func(id bourse.WorkerID) bool { return slices.Contains(canceled, id) })
	if len(away) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable,
		"order %s may already have been filled by a worker that does not answer (%s): repeat it with the same id", t.order.ID, list(away))
}

// refuseLeaving turns the quote of each leaving worker into a refusal, unless the quote shows that
// the worker has already filled the order.
func (t *trade) refuseLeaving(members []bourse.Member, quotes []bourse.Quote) {
	for i := range quotes {
		checkQuote(&quotes[i], &members[i], t.order, bourse.Choice{quotes[i].Region})
		if quotes[i].Refusal == nil && quotes[i].Fill() == nil {
			quotes[i].Refusal = newRefusal(&members[i], bourse.RefusedUnavailable, "the worker is leaving")
		}
	}
}

// unresponsive returns the IDs of the members that did not answer.
func unresponsive(members []bourse.Member, quotes []bourse.Quote) []bourse.WorkerID {
	var out []bourse.WorkerID
	for i := range quotes {
		if silent(&quotes[i]) {
			out = append(out, members[i].ID)
		}
	}
	return out
}

// cancelAbsent cancels the order on permanently lost workers that may have filled it. It must be called before another
// worker fills the order. If a lost worker returns after all, it finds the cancellation and destroys the order's
// machine.
func (t *trade) cancelAbsent(ctx context.Context, absent []bourse.Absence) error {
	if t.quoteOnly || !mustFillOnce(t.order) || t.exchange.cfg.Cancellations == nil {
		return nil
	}
	now := time.Now()
	for _, a := range absent {
		if !a.Lost(now) || !t.eligible(&a.Member) || !a.MayHaveFilled(t.order.ID, now) {
			continue
		}
		if err := t.exchange.cfg.Cancellations.RecordCancellation(ctx, t.order.ID, a.ID); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "cancel order %s on lost worker %s: %w", t.order.ID, a.ID, err)
		}
	}
	return nil
}

// mustFillOnce reports whether the order must be filled exactly once even if its caller
// disconnects. This is the case if the caller chose the order's ID, because the caller may then
// repeat the order through any broker. Holds are excluded because they expire automatically; for
// tasks, see task.go.
func mustFillOnce(o *bourse.Order) bool {
	return o.MayRepeat() && o.Kind() != bourse.KindHold && o.Kind() != bourse.KindTask
}

// errSuperseded returns the error for an attempt that was superseded by a later attempt to place the same order. Only
// the later attempt can report the order's outcome.
func errSuperseded(order *bourse.Order) error {
	return bourse.Errorf(bourse.CodeTimeout, "order %s was superseded by a later attempt: repeat it", order.ID)
}

// cancelLost cancels the order on m after m's answer to a claim was lost, and reports whether the cancellation
// succeeded. If it failed, no other worker may fill the order, and the caller must repeat the order. cancelLost does
// not retry the cancellation, because by then the caller may have repeated the order and received the machine on m,
// which the retry would destroy.
func (t *trade) cancelLost(ctx context.Context, m *bourse.Member) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cancelTime())
	defer cancel()
	if _, err := t.exchange.cfg.Trader.Cancel(ctx, *m, t.order.ID); err != nil {
		t.unknown = bourse.Errorf(bourse.CodeTimeout,
			"the answer from worker %s was lost, but the worker may have filled the order: repeat it with order id %s", m.ID, t.order.ID)
		return false
	}
	t.canceled = append(t.canceled, m.ID)
	return true
}

// leavingWorkers returns the workers that are leaving. They accept no orders, but may already have
// filled this one.
func (t *trade) leavingWorkers(here []bourse.Member) (out []bourse.Member) {
	for i := range here {
		if m := &here[i]; m.Leaving && t.eligible(m) {
			out = append(out, *m)
		}
	}
	return out
}
