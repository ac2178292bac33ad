package lookup

import (
	"cmp"
	"slices"

	"github.com/bourse-dev/bourse"
)

// ReservedHolds contains the workers' holds, grouped by reservation.
type ReservedHolds struct {
	Of      map[bourse.ReservationID][]bourse.Hold // the holds of each reservation, in the order of its requests
	Missing []bourse.WorkerID                      // workers that did not answer
}

// HoldsByReservation groups the reported holds by reservation. foreign reports whether a hold is
// off limits to the caller; see [Reservation]. If any of a worker's holds for a reservation is
// foreign, all of the worker's holds for that reservation are omitted. Holds that a worker reports
// on behalf of another worker are ignored.
func HoldsByReservation(answers []Answer[[]bourse.Hold], foreign func(*bourse.Hold) bool) ReservedHolds {
	byKey := map[bourse.ReservationKey][]bourse.Hold{}
	for _, a := range answers {
		parts := map[bourse.ReservationKey][]bourse.Hold{}
		for _, h := range a.Got {
			if holds(&a.From, &h) && h.Reservation.Validate() == nil {
				parts[h.Reservation] = append(parts[h.Reservation], h)
			}
		}
		for key, part := range parts {
			if !hasForeign(part, foreign) {
				byKey[key] = append(byKey[key], part...)
			}
		}
	}
	out := ReservedHolds{Of: make(map[bourse.ReservationID][]bourse.Hold, len(byKey)), Missing: Unresponsive(answers)}
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

// hasForeign reports whether any hold in part is off limits to the caller. part must contain all of one worker's holds
// for one reservation, because they can be extended or released only together.
func hasForeign(part []bourse.Hold, foreign func(*bourse.Hold) bool) bool {
	return foreign != nil && slices.ContainsFunc(part, func(h bourse.Hold) bool { return foreign(&h) })
}

// holds reports whether h is a hold of m, the worker that reported it.
func holds(m *bourse.Member, h *bourse.Hold) bool { return h.Worker == m.ID && h.Tag == m.Tag }
