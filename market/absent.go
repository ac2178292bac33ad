package market

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// A worker that cannot be reached refuses nothing. When there is no other, the
// end of the order is not a no but "ask again". And a worker that may have
// filled the order, in an earlier try whose answer was lost, is waited for:
// the caller repeats until it is back, or is lost for good.

// absentees returns those of the absent workers that might have filled the order, if
// they were here: those of its regions, volume and reservation that are not
// lost for good.
func (t *trade) absentees(all []bourse.Absence) []bourse.Absence {
	now := time.Now()
	var out []bourse.Absence
	for _, a := range all {
		if !a.Lost(now) && t.concerns(&a.Member) {
			out = append(out, a)
		}
	}
	return out
}

// concerns reports whether the order may be filled at m, as far as the order
// names regions.
func (t *trade) concerns(m *bourse.Member) bool {
	pin := t.order.Pinned()
	return names(t.order.Regions, m.Region) && (pin == 0 || m.Tag == pin) && reserved(t.order, m)
}

// errNoOne is the error of an order that no worker refused: either it is known
// that there is none, or those that there are cannot be reached.
func (t *trade) errNoOne() error {
	var away []bourse.WorkerID
	here, absent := t.x.cfg.Directory.All()
	for _, a := range t.absentees(absent) {
		away = append(away, a.ID)
	}
	for _, m := range here {
		if m.Leaving && t.concerns(&m) {
			away = append(away, m.ID)
		}
	}
	if len(away) == 0 {
		return t.noes.err(t.order, t.decision.Rounds)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "no worker of %s can be reached at present: %s", regions(t.decision.Rounds), list(away))
}

// list writes down some workers.
func list(ids []bourse.WorkerID) string {
	names := make([]string, min(len(ids), maxShown))
	for i := range names {
		names[i] = string(ids[i])
	}
	return strings.Join(more(names, len(ids)-maxShown), ", ")
}

// mayBeFilled reports CodeUnavailable when the order must not be filled now,
// because a worker that cannot be asked may have filled it before: one that
// did not answer (mute), or one that is absent. Where the order was canceled it
// is not filled. A first try has been filled nowhere.
func (t *trade) mayBeFilled(ctx context.Context, mute []bourse.WorkerID, absent []bourse.Absence) error {
	if t.quoteOnly || !t.order.MayRepeat() || t.order.Kind() == bourse.KindHold {
		return nil
	}
	now := time.Now()
	away := mute
	for _, a := range t.absentees(absent) {
		if a.MayHaveFilled(t.order.ID, now) {
			away = append(away, a.ID)
		}
	}
	if len(away) == 0 {
		return nil
	}
	voided, err := t.x.voidedAt(ctx, t.order)
	if err != nil {
		return bourse.Errorf(bourse.CodeUnavailable, "order %s: it cannot be read where it was canceled: %w", t.order.ID, err)
	}
	away = slices.DeleteFunc(away, func(id bourse.WorkerID) bool { return slices.Contains(voided, id) })
	if len(away) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeUnavailable,
		"order %s may have been filled before by a worker that does not answer: %s: repeat it with the same id", t.order.ID, list(away))
}

// refuseLeaving turns the quotes of workers that are leaving into refusals, but
// for what they have filled.
func (t *trade) refuseLeaving(members []bourse.Member, quotes []bourse.Quote) {
	for i := range quotes {
		vet(&quotes[i], &members[i], t.order, bourse.Choice{quotes[i].Region})
		if quotes[i].Refusal == nil && quotes[i].Fill() == nil {
			quotes[i].Refusal = no(&members[i], bourse.RefusedUnavailable, "the worker is leaving")
		}
	}
}

// mute returns the members that did not answer.
func mute(members []bourse.Member, quotes []bourse.Quote) []bourse.WorkerID {
	var out []bourse.WorkerID
	for i := range quotes {
		if silent(&quotes[i]) {
			out = append(out, members[i].ID)
		}
	}
	return out
}

// voidLost cancels the order, before it is filled, at workers that are lost for
// good and may have filled it: one that returns after all destroys what it has
// of it.
func (t *trade) voidLost(ctx context.Context, absent []bourse.Absence) error {
	if t.quoteOnly || !lasts(t.order) || t.x.cfg.Voids == nil {
		return nil
	}
	now := time.Now()
	for _, a := range absent {
		if !a.Lost(now) || !t.concerns(&a.Member) || !a.MayHaveFilled(t.order.ID, now) {
			continue
		}
		if err := t.x.cfg.Voids.Void(ctx, t.order.ID, a.ID); err != nil {
			return bourse.Errorf(bourse.CodeUnavailable, "order %s cannot be canceled at worker %s, which is lost: %w", t.order.ID, a.ID, err)
		}
	}
	return nil
}

// lasts reports whether the order is to be filled once even if its caller leaves:
// a caller that chose the id may repeat it, through this broker or
// another. What a hold takes ends by itself; for tasks see task.go.
func lasts(o *bourse.Order) bool {
	return o.MayRepeat() && o.Kind() != bourse.KindHold && o.Kind() != bourse.KindTask
}

// errOvertaken is the error of a try of an order after which another one asked
// its workers: only the later try learns what becomes of the order.
func errOvertaken(order *bourse.Order) error {
	return bourse.Errorf(bourse.CodeTimeout, "another try of order %s has begun since: repeat it", order.ID)
}

// undone makes sure that a claim whose answer was lost is not, or no longer,
// filled at m. If that is impossible, no other worker may fill the order, and the
// caller repeats it: the cancellation must not reach its worker when the caller
// has already received the machine there.
func (t *trade) undone(ctx context.Context, m *bourse.Member) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), t.voidTime())
	defer cancel()
	if _, err := t.x.cfg.Trader.Cancel(ctx, *m, t.order.ID); err != nil {
		t.unsure = bourse.Errorf(bourse.CodeTimeout,
			"the answer of worker %s was lost, and it may have filled the order: repeat it with order id %s", m.ID, t.order.ID)
		return false
	}
	t.voided = append(t.voided, m.ID)
	return true
}

// leaving returns those workers of the order's regions that take no orders any
// more, and may have filled this one.
func (t *trade) leaving(here []bourse.Member) (out []bourse.Member) {
	for i := range here {
		if m := &here[i]; m.Leaving && t.concerns(m) {
			out = append(out, *m)
		}
	}
	return out
}
