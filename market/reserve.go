package market

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Reserve fills all of the orders or none. They are for capacity, of one
// reservation, validated and normalized; the first one's deadline is that of
// the whole, at most half of the time of the holds: so the first is still
// held when the last one is. The holds are those of the orders, of the same
// index. The errors are those of Place, the decision is that of the order that
// was not filled.
//
// The orders are placed one after the other, as any other order is, larger ones
// first. When one is not filled, all that is held is released, by the same
// cancellations as for orders (see claim.go): one that cannot be delivered is found
// by its worker in Voids, and its hold ends by its time in any case.
//
// A caller that chose the reservation's key and has left may repeat it: it goes on
// to its end without the caller, and a repetition finds what is held (see once.go).
// After a refusal the key is used up: its workers refuse it. Two brokers that
// are sent one key at the same moment hold once, but when one of them fails
// it releases for both: the other's caller may then receive holds that have ended.
func (x *Exchange) Reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error) {
	began, first := time.Now(), &orders[0]
	if err := ctx.Err(); err != nil {
		return nil, abandoned(first), errLeft(err)
	}
	stay := ctx
	if first.Named {
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
	// The parts of one order: what they are canceled by, and until when.
	t := &trade{x: x, order: &bourse.Order{ID: all}, deadline: began.Add(within)}
	f.holds, f.decision, f.err = t.reserve(work, orders)
	return f.holds, f.decision, f.err
}

func (t *trade) reserve(ctx context.Context, orders []bourse.Order) ([]bourse.Hold, bourse.Decision, error) {
	holds := make([]bourse.Hold, len(orders))
	for _, i := range largestFirst(orders) {
		order := orders[i]
		order.Within = bourse.Duration(max(1, time.Until(t.deadline)))
		fill, decision, err := t.x.Place(ctx, order)
		if err == nil && errors.Is(ctx.Err(), context.Canceled) {
			err = errLeft(ctx.Err())
		}
		if fill.Hold != nil {
			holds[i] = *fill.Hold
		}
		if err != nil {
			t.void(ctx, t.holders(holds))
			return nil, decision, err
		}
	}
	return holds, bourse.Decision{}, nil
}

// largestFirst returns the order in which to place orders: a small one must not
// take the only place where a large one fits.
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

// holders returns each worker that holds something, as the directory knows it
// now. One that it no longer knows is named by its id: it finds the
// cancellation in Voids.
func (t *trade) holders(holds []bourse.Hold) []*bourse.Member {
	var out []*bourse.Member
	for i := range holds {
		id := holds[i].Worker
		if id == "" || slices.ContainsFunc(out, func(m *bourse.Member) bool { return m.ID == id }) {
			continue
		}
		out = append(out, t.x.member(id, holds[i].Region))
	}
	return out
}

func (x *Exchange) member(id bourse.WorkerID, stands bourse.Region) *bourse.Member {
	for _, region := range append([]bourse.Region{stands}, x.cfg.Directory.Regions()...) {
		members := x.cfg.Directory.Candidates(region)
		if i := slices.IndexFunc(members, func(m bourse.Member) bool { return m.ID == id }); i >= 0 {
			return &members[i]
		}
	}
	return &bourse.Member{ID: id, Role: bourse.RoleWorker, Region: stands}
}

// reserved reports whether m can hold something for the order's reservation;
// true for every worker if the order has none.
func reserved(order *bourse.Order, m *bourse.Member) bool {
	return order.Reservation == "" || slices.Contains(order.Reservation.Workers(), m.Tag)
}

// heldFirst moves those to the front, in their order, that hold all that the
// order takes: what is free is for others.
func heldFirst(ranked []Ranked, quotes []bourse.Quote) {
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
