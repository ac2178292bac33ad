package admit

import (
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// LiveHolds returns what a reservation holds now for machines of an app, nil for
// any.
func LiveHolds(tx *store.Tx, key bourse.ReservationKey, app *bourse.App, now time.Time) ([]bourse.Hold, error) {
	holds, err := tx.HoldsOf(key.All())
	return slices.DeleteFunc(holds, func(h bourse.Hold) bool {
		return !h.ExpiresAt.After(now) || app != nil && !h.OwnedBy(app)
	}), err
}

// committed returns what is committed to others than the order: what its
// reservation holds for it counts as free. drawn is how much of that a machine
// takes that takes so much. An order whose reservation holds nothing here is
// refused.
func (h *Host) committed(tx *store.Tx, order *bourse.Order, takes bourse.Amounts, now time.Time) (committed, drawn bourse.Amounts, _ *bourse.Refusal, _ error) {
	committed, err := tx.CommittedAt(now)
	if err != nil || order.Reservation == "" {
		return committed, nil, nil, err
	}
	holds, err := LiveHolds(tx, order.Reservation.Key(), &order.App, now)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(holds) == 0 {
		return nil, nil, &bourse.Refusal{Reason: bourse.RefusedReservation, Detail: fmt.Sprintf(
			"nothing is held for reservation %s and app %s: it has expired, was released, or never was", order.Reservation.Key(), order.App.Name)}, nil
	}
	drawn = draw(holds, takes)
	return Less(committed, drawn), drawn, nil, nil
}

// Drawn returns the holds of an order's reservation out of which a machine takes
// so much, with what is left in them.
func Drawn(tx *store.Tx, order *bourse.Order, takes bourse.Amounts, now time.Time) ([]bourse.Hold, error) {
	if order.Reservation == "" {
		return nil, nil
	}
	holds, err := LiveHolds(tx, order.Reservation.Key(), &order.App, now)
	if err != nil {
		return nil, err
	}
	before := slices.Clone(holds)
	draw(holds, takes)
	var changed []bourse.Hold
	for i := range holds {
		if slices.Equal(before[i].Left, holds[i].Left) {
			continue
		}
		holds[i].Left = slices.DeleteFunc(holds[i].Left, func(a bourse.Amount) bool { return a.Amount == 0 })
		changed = append(changed, holds[i])
	}
	return changed, nil
}

// draw takes as much of takes out of holds as is left in them, one after the
// other, and returns what that was.
func draw(holds []bourse.Hold, takes bourse.Amounts) bourse.Amounts {
	need := slices.Clone(takes)
	for h := range holds {
		holds[h].Left = slices.Clone(holds[h].Left) // others may have the list
		for j := range holds[h].Left {
			left := &holds[h].Left[j]
			if i := slices.IndexFunc(need, func(a bourse.Amount) bool { return a.Resource == left.Resource }); i >= 0 {
				n := min(need[i].Amount, left.Amount)
				left.Amount -= n
				need[i].Amount -= n
			}
		}
	}
	drawn := slices.Clone(takes)
	for i := range drawn {
		drawn[i].Amount -= need[i].Amount
	}
	return drawn
}
