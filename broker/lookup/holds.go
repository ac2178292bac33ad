package lookup

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Held is what workers hold, by reservation.
type Held struct {
	Of      map[bourse.ReservationID][]bourse.Hold // in the order of their requests
	Missing []bourse.WorkerID                      // that did not answer
}

// HoldsByReservation puts together what workers have answered. A worker speaks for
// what it holds itself.
func HoldsByReservation(answers []Answer[[]bourse.Hold]) Held {
	byKey := map[bourse.ReservationKey][]bourse.Hold{}
	for _, a := range answers {
		for _, h := range a.Got {
			if holds(&a.From, &h) && h.Reservation.Validate() == nil {
				byKey[h.Reservation] = append(byKey[h.Reservation], h)
			}
		}
	}
	out := Held{Of: make(map[bourse.ReservationID][]bourse.Hold, len(byKey)), Missing: Silent(answers)}
	for key, list := range byKey {
		slices.SortFunc(list, func(x, y bourse.Hold) int {
			return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Worker, y.Worker), cmp.Compare(x.Order, y.Order))
		})
		tags := make([]bourse.WorkerTag, len(list))
		for i := range list {
			tags[i] = list[i].Tag
		}
		out.Of[key.At(tags)] = list
	}
	return out
}

// holds reports whether a worker says of itself that it holds h.
func holds(m *bourse.Member, h *bourse.Hold) bool { return h.Worker == m.ID && h.Tag == m.Tag }
