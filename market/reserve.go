package market

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Reserve fills either all of the orders or none. The orders must request capacity for the same
// reservation, and must have been validated and normalized. The deadline of the first order applies
// to all of them together. It is limited to half of the holds' TTL, so that the first hold still
// exists when the last one is created. The holds are returned in the same sequence as the orders.
// Reserve returns the same errors as Place. If an order was not filled, the decision is about that
// order. If all were filled, the decision is empty.
//
// The orders are placed one after the other, larger ones first, in the same way as any other order.
// If one of them is not filled, Reserve releases all holds by canceling their orders (see
// claim.go). If a cancellation cannot be delivered, the worker finds it in the CancellationStore.
// In any case, the hold expires eventually.
//
// If the caller chose the reservation's key, Reserve continues even after the caller has disconnected, and a repeated
// call finds the holds (see place_once.go). After a refusal, the key cannot be used again, because the workers on which
// its orders were canceled refuse it. If two brokers receive the same key at the same moment, they create one set of
// holds. If one of them fails, it releases the holds of both, and the caller of the other broker may receive holds that
// no longer exist.
func (x *Exchange) Reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error) {
	began, first := time.Now(), &orders[0]
	if err := ctx.Err(); err != nil {
		return nil, abandoned(first), errCallerGone(err)
	}
	stay := ctx
	if first.HasChosenID {
		stay = context.WithoutCancel(ctx)
	}
	all := first.Hold.Reservation.All()
	within := min(first.Deadline(), time.Duration(first.Hold.TTL)/2)
	f, work, err := x.inflight.join(stay, all, softDeadline(began, within))
	if err != nil {
		return nil, abandoned(first), err
	}
	if work == nil {
		if err := x.inflight.await(ctx, f); err != nil {
			return nil, abandoned(first), err
		}
		return f.holds, f.decision, f.err
	}
	defer x.inflight.finish(f)
	// reserve and cancelAll use only these fields. With this order ID, cancelAll cancels the whole reservation.
	t := &trade{exchange: x, order: &bourse.Order{ID: all}, deadline: began.Add(within)}
	f.holds, f.decision, f.err = t.reserve(work, orders)
	return f.holds, f.decision, f.err
}

func (t *trade) reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error) {
	holds := make([]bourse.Hold, len(orders))
	for _, i := range largestFirst(orders) {
		order := orders[i]
		order.Timeout = bourse.Duration(max(1, time.Until(t.deadline)))
		fill, decision, err := t.exchange.Place(ctx, order)
		if err == nil && errors.Is(ctx.Err(), context.Canceled) {
			err = errCallerGone(ctx.Err())
		}
		if fill.Hold != nil {
			holds[i] = *fill.Hold
		}
		if err != nil {
			t.cancelAll(ctx, t.holders(holds))
			return nil, decision, err
		}
	}
	return holds, bourse.Decision{}, nil
}

// largestFirst returns the indexes of the orders, sorted by decreasing size. The orders must be placed in this
// sequence, because a small order that is placed first could take the only place where a large one fits.
func largestFirst(orders []bourse.Order) []int {
	index := make([]int, len(orders))
	for i := range index {
		index[i] = i
	}
	slices.SortStableFunc(index, func(i, j int) int {
		a, b := orders[i].Config.Guest, orders[j].Config.Guest
		return -cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.MemoryMB, b.MemoryMB), cmp.Compare(a.CPUs, b.CPUs))
	})
	return index
}

// holders returns the workers of the given holds, as the directory currently lists them. If the directory no longer
// lists a worker, the result contains only its ID and region. The cancellation cannot be sent to such a worker, but the
// worker finds it in the CancellationStore.
func (t *trade) holders(holds []bourse.Hold) []*bourse.Member {
	var out []*bourse.Member
	for i := range holds {
		id := holds[i].Worker
		if id == "" || slices.ContainsFunc(out, func(m *bourse.Member) bool { return m.ID == id }) {
			continue
		}
		out = append(out, t.exchange.holder(id, holds[i].Region))
	}
	return out
}

func (x *Exchange) holder(id bourse.WorkerID, stands bourse.Region) *bourse.Member {
	for _, region := range append([]bourse.Region{stands}, x.cfg.Directory.Regions()...) {
		members := x.cfg.Directory.Candidates(region)
		if i := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == id }); i >= 0 {
			return &members[i]
		}
	}
	return &bourse.Member{ID: id, Role: bourse.RoleWorker, Region: stands}
}

// reserved reports whether m may have capacity for the order's reservation. If the order has no
// reservation, it returns true for every worker.
func reserved(order *bourse.Order, m *bourse.Member) bool {
	return order.Reservation == "" || slices.Contains(order.Reservation.Workers(), m.Tag)
}

// preferHolds moves the workers whose holds cover all of the order's amounts to the front, so that the order does not
// take free capacity from other orders. It does not change the ranking in any other way.
func preferHolds(ranked []Ranked, quotes []bourse.Quote) {
	slices.SortStableFunc(ranked, func(a, b Ranked) int {
		switch x, y := quotes[a.Quote].Held, quotes[b.Quote].Held; {
		case x && !y:
			return -1
		case y && !x:
			return 1
		}
		return 0
	})
}
