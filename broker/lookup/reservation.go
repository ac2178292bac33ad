package lookup

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Reservation collects the holds of one reservation.
type Reservation struct {
	ID           bourse.ReservationID
	At           []bourse.Member // the reservation's workers, except unknown ones
	Holds        []bourse.Hold   // in the order in which the reservation requested them
	Gone         []string        // workers that no longer have a hold for the reservation, and tags of unknown workers
	Unresponsive []bourse.WorkerID

	Foreign func(*bourse.Hold) bool // reports whether a hold is off limits to the caller; nil: all holds may be used
}

// Add adds the holds in workers' answers. It ignores holds of other reservations, and holds that a worker reports on
// behalf of another worker. If the caller may not use one of a worker's holds (see Foreign), Add treats the worker as
// if it had no holds, and removes it from At.
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
			r.Unresponsive = append(r.Unresponsive, a.From.ID)
		}
	}
	slices.SortFunc(r.Holds, func(x, y bourse.Hold) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Worker, y.Worker), cmp.Compare(x.Order, y.Order))
	})
}

// ErrIfEmpty returns an error if no holds were found.
func (r *Reservation) ErrIfEmpty() error {
	switch {
	case len(r.Holds) > 0:
		return nil
	case len(r.Unresponsive) > 0:
		return bourse.Errorf(bourse.CodeUnavailable, "reservation %s: %s", r.ID, UnresponsiveText(r.Unresponsive))
	}
	return NoReservation(r.ID)
}

// ErrIfIncomplete returns an error if the reservation is incomplete. The error's code is conflict if some workers no
// longer have their holds; otherwise, if some workers did not answer, the code is unanswered. consequence is appended
// to the error's text.
func (r *Reservation) ErrIfIncomplete(unanswered bourse.Code, consequence string) error {
	switch {
	case len(r.Gone) > 0:
		return bourse.Errorf(bourse.CodeConflict, "reservation %s: worker %s no longer has its hold; %s", r.ID, strings.Join(r.Gone, ", "), consequence)
	case len(r.Unresponsive) > 0:
		return bourse.Errorf(unanswered, "reservation %s: %s; %s", r.ID, UnresponsiveText(r.Unresponsive), consequence)
	}
	return nil
}

// NoReservation returns the error for a reservation that does not exist or belongs to another caller.
func NoReservation(id bourse.ReservationID) error {
	return bourse.Errorf(bourse.CodeNotFound, "reservation %s not found: it has expired, was released, or never existed", id)
}
