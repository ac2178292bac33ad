package lookup

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Reservation is what could be found out of one.
type Reservation struct {
	ID     bourse.ReservationID
	At     []bourse.Member // known workers of it
	Holds  []bourse.Hold   // in the order of the request
	Gone   []string        // workers, or tags of unknown ones, that hold nothing for it
	Silent []bourse.WorkerID

	Foreign func(*bourse.Hold) bool // reports whether the caller may not use a hold; nil: he may use all
}

// Add notes what workers have answered. Each speaks for what it holds itself, of this
// reservation. One whose part is foreign holds nothing for the caller, and is asked for no more.
func (r *Reservation) Add(answers []Answer[[]bourse.Hold]) {
	for _, a := range answers {
		own := slices.DeleteFunc(a.Got, func(h bourse.Hold) bool { return h.Reservation != r.ID.Key() || !holds(&a.From, &h) })
		if hasForeign(own, r.Foreign) {
			own = nil
			r.At = slices.DeleteFunc(r.At, func(m bourse.Member) bool { return m.ID == a.From.ID })
		}
		switch {
		case len(own) > 0 && a.Err == nil:
			r.Holds = append(r.Holds, own...)
		case a.Err == nil, bourse.CodeOf(a.Err) == bourse.CodeNotFound:
			r.Gone = append(r.Gone, string(a.From.ID))
		default:
			r.Silent = append(r.Silent, a.From.ID)
		}
	}
	slices.SortFunc(r.Holds, func(x, y bourse.Hold) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Worker, y.Worker), cmp.Compare(x.Order, y.Order))
	})
}

// None reports that nothing of the reservation was found.
func (r *Reservation) None() error {
	switch {
	case len(r.Holds) > 0:
		return nil
	case len(r.Silent) > 0:
		return bourse.Errorf(bourse.CodeUnavailable, "reservation %s: %s", r.ID, DoNotAnswer(r.Silent))
	}
	return NoReservation(r.ID)
}

// Whole reports which workers hold their part no longer (CodeConflict), or do
// not say.
func (r *Reservation) Whole(silence bourse.Code, so string) error {
	switch {
	case len(r.Gone) > 0:
		return bourse.Errorf(bourse.CodeConflict, "reservation %s: worker %s holds its part no longer; %s", r.ID, strings.Join(r.Gone, ", "), so)
	case len(r.Silent) > 0:
		return bourse.Errorf(silence, "reservation %s: %s; %s", r.ID, DoNotAnswer(r.Silent), so)
	}
	return nil
}

// NoReservation is what is said of a reservation that is not there, or not the
// caller's.
func NoReservation(id bourse.ReservationID) error {
	return bourse.Errorf(bourse.CodeNotFound, "reservation %s not found: it has expired, was released, or never was", id)
}
