package market

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// An unreachable worker refuses nothing. If it is the only candidate, the order ends as unavailable instead of
// refused. An unreachable worker that may have filled an earlier try of the order, whose answer was lost, blocks the
// order: the caller repeats it until that worker is back or lost for good.

// absentCandidates returns the absent workers that might have filled the order if they were reachable: those in its regions,
// with its volume and reservation, that are not lost for good.
func (t *trade) absentCandidates(all []bourse.Absence) []bourse.Absence {
	now := time.Now()
	var out []bourse.Absence
	for _, a := range all {
		if !a.Lost(now) && t.concerns(&a.Member) {
			out = append(out, a)
		}
	}
	return out
}

// concerns reports whether the order may be filled at m, judged by its regions, volume and reservation.
func (t *trade) concerns(m *bourse.Member) bool {
	pin := t.order.Pinned()
	return names(t.order.Regions, m.Region) && (pin == 0 || m.Tag == pin) && reserved(t.order, m)
}

// errNoWorker returns the error of an order that no worker refused: either there is no candidate, or no candidate can
// be reached.
func (t *trade) errNoWorker() error {
	var away []bourse.WorkerID
	here, absent := t.x.cfg.Directory.All()
	for _, a := range t.absentCandidates(absent) {
		away = append(away, a.ID)
	}
	for _, m := range here {
		if m.Leaving && t.concerns(&m) {
			away = append(away, m.ID)
		}
	}
	if len(away) == 0 {
		return t.refusals.err(t.order, t.decision.Rounds)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "none of the workers in %s can be reached now: %s", regions(t.decision.Rounds), list(away))
}

// list joins worker ids for a message, shortened to maxShown.
func list(ids []bourse.WorkerID) string {
	names := make([]string, min(len(ids), maxShown))
	for i := range names {
		names[i] = string(ids[i])
	}
	return strings.Join(more(names, len(ids)-maxShown), ", ")
}

// mayBeFilled returns CodeUnavailable if the order must not be filled now because an unreachable worker may have
// filled it before: one that did not answer (mute) or one that is absent. A worker where the order was canceled does
// not count. The first try of an order cannot have been filled anywhere.
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
	canceled, err := t.x.canceledOn(ctx, t.order)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "order %s: read its earlier cancellations: %w", t.order.ID, err)
	}
	away = slices.DeleteFunc(away, func(id bourse.WorkerID) bool { return slices.Contains(canceled, id) })
	if len(away) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable,
		"an earlier try of order %s may have been filled by a worker that does not answer (%s): repeat it with the same id", t.order.ID, list(away))
}

// refuseLeaving turns the quotes of leaving workers into refusals, unless the worker has already filled the order.
func (t *trade) refuseLeaving(members []bourse.Member, quotes []bourse.Quote) {
	for i := range quotes {
		vet(&quotes[i], &members[i], t.order, bourse.Choice{quotes[i].Region})
		if quotes[i].Refusal == nil && quotes[i].Fill() == nil {
			quotes[i].Refusal = newRefusal(&members[i], bourse.RefusedUnavailable, "the worker is leaving")
		}
	}
}

// unresponsive returns the members that did not answer.
func unresponsive(members []bourse.Member, quotes []bourse.Quote) []bourse.WorkerID {
	var out []bourse.WorkerID
	for i := range quotes {
		if silent(&quotes[i]) {
			out = append(out, members[i].ID)
		}
	}
	return out
}

// cancelAbsent cancels the order at workers that are lost for good and may have filled it, before it is filled elsewhere.
// If such a worker returns after all, it destroys what it has of the order.
func (t *trade) cancelAbsent(ctx context.Context, absent []bourse.Absence) error {
	if t.quoteOnly || !mustFillOnce(t.order) || t.x.cfg.Cancellations == nil {
		return nil
	}
	now := time.Now()
	for _, a := range absent {
		if !a.Lost(now) || !t.concerns(&a.Member) || !a.MayHaveFilled(t.order.ID, now) {
			continue
		}
		if err := t.x.cfg.Cancellations.RecordCancellation(ctx, t.order.ID, a.ID); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "cancel order %s at lost worker %s: %w", t.order.ID, a.ID, err)
		}
	}
	return nil
}

// mustFillOnce reports whether the order must be filled exactly once even if its caller leaves: a caller that chose the id
// may repeat it, through this broker or another. Holds expire on their own; for tasks see task.go.
func mustFillOnce(o *bourse.Order) bool {
	return o.MayRepeat() && o.Kind() != bourse.KindHold && o.Kind() != bourse.KindTask
}

// errOvertaken returns the error of a try that a later try of the same order has overtaken. Only the later try learns
// the order's outcome.
func errOvertaken(order *bourse.Order) error {
	return bourse.Errorf(bourse.CodeTimeout, "order %s was overtaken by a later try: repeat it", order.ID)
}

// cancelLost cancels the order at m, whose answer to a claim was lost, and reports whether that succeeded. If not, no
// other worker may fill the order, and the caller has to repeat it: a later cancellation could otherwise reach m
// after the caller has received the machine there.
func (t *trade) cancelLost(ctx context.Context, m *bourse.Member) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.cancelTime())
	defer cancel()
	if _, err := t.x.cfg.Trader.Cancel(ctx, *m, t.order.ID); err != nil {
		t.unknown = bourse.Errorf(bourse.CodeTimeout,
			"the answer of worker %s was lost, and it may have filled the order: repeat it with order id %s", m.ID, t.order.ID)
		return false
	}
	t.canceled = append(t.canceled, m.ID)
	return true
}

// leaving returns the workers in the order's regions that no longer accept orders but may have filled this one.
func (t *trade) leaving(here []bourse.Member) (out []bourse.Member) {
	for i := range here {
		if m := &here[i]; m.Leaving && t.concerns(m) {
			out = append(out, *m)
		}
	}
	return out
}
