package broker

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// reservationHandler serves the reservation endpoints. Brokers do not store reservations; a reservation's ID identifies
// the workers that hold its capacity.
type reservationHandler struct {
	*Config
	gate *endpoint.Gate
}

func (rs *reservationHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/reservations", endpoint.Token, rs.gate.Ordering(endpoint.MachineLease, rs.createReservation)).Reads(machinesapi.CreateReservation{}).Writes(machinesapi.Reservation{}),
		endpoint.On("GET /v1/reservations", endpoint.Token, rs.listReservations).Writes([]machinesapi.Reservation{}),
		endpoint.On("GET "+endpoint.OneReservation, endpoint.Token, rs.getReservation).Writes(machinesapi.Reservation{}),
		endpoint.On("PATCH "+endpoint.OneReservation, endpoint.Token, rs.extendReservation).Reads(machinesapi.ExtendReservation{}).Writes(machinesapi.Reservation{}),
		endpoint.On("DELETE "+endpoint.OneReservation, endpoint.Token, rs.releaseReservation).Writes(machinesapi.OK{}),
	}
}

// listReservations asks all workers for their holds, and lists the reservations of the apps that
// the caller may use.
func (rs *reservationHandler) listReservations(w http.ResponseWriter, r *endpoint.Request) error {
	var foreign func(*bourse.Hold) bool
	if !r.Who.Cluster() {
		mine, err := rs.gate.AppsOf(r)
		if err != nil {
			return err
		}
		foreign = func(h *bourse.Hold) bool {
			return !slices.ContainsFunc(mine, func(app bourse.App) bool { return h.OwnedBy(&app) })
		}
	}
	found := lookup.HoldsByReservation(lookup.Ask(r.Context(), rs.Timeout, rs.Directory.Workers(), lookup.Asking(rs.Workers, &fabric.ReservationList, struct{}{})), foreign)
	out := []machinesapi.Reservation{}
	for id, holds := range found.Of {
		out = append(out, machinesapi.FromHolds(id, holds))
	}
	slices.SortFunc(out, func(x, y machinesapi.Reservation) int { return cmp.Compare(x.ID, y.ID) })
	endpoint.ListUnreachable(w.Header(), found.Missing)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// reservationOf asks the workers of the reservation in the request's path for their holds. Errors: invalid; not_found
// if the reservation does not exist or belongs to another caller.
func (rs *reservationHandler) reservationOf(r *endpoint.Request) (lookup.Reservation, error) {
	h := lookup.Reservation{ID: bourse.ReservationID(r.PathValue("reservation"))}
	if !r.Who.Cluster() {
		h.Foreign = func(hold *bourse.Hold) bool {
			app, err := rs.gate.Usable(r, hold.App)
			return err != nil || !hold.OwnedBy(&app)
		}
	}
	if err := h.ID.Validate(); err != nil {
		return h, err
	}
	for _, tag := range h.ID.Workers() {
		switch m, a := byTag(rs.Directory, tag); {
		case m != nil:
			h.At = append(h.At, *m)
		case a != nil && !a.Lost(rs.Now()):
			h.Unresponsive = append(h.Unresponsive, a.ID)
		default:
			h.Gone = append(h.Gone, tag.String())
		}
	}
	h.Add(lookup.Ask(r.Context(), rs.Timeout, h.At, lookup.Asking(rs.Workers, &fabric.ReservationShow, h.ID.Key())))
	if !r.Who.Cluster() && len(h.Holds) == 0 && !rs.reserved(r, h.ID.Key()) {
		return h, lookup.NoReservation(h.ID)
	}
	return h, nil
}

// reserved determines from a reservation's key alone whether the reservation belongs to an app that the caller may use.
// It is called if no holds were found, either because none remain or because no worker answered.
func (rs *reservationHandler) reserved(r *endpoint.Request, key bourse.ReservationKey) bool {
	mine, err := rs.gate.AppsOf(r)
	return err == nil && slices.ContainsFunc(mine, func(app bourse.App) bool { return key.In(app.ID) == key })
}

func writeReservation(w http.ResponseWriter, h *lookup.Reservation) error {
	out := machinesapi.FromHolds(h.ID, h.Holds)
	out.LostWorkers = h.Gone
	endpoint.ListUnreachable(w.Header(), h.Unresponsive)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

func (rs *reservationHandler) getReservation(w http.ResponseWriter, r *endpoint.Request) error {
	h, err := rs.reservationOf(r)
	if err == nil {
		err = h.ErrIfEmpty()
	}
	if err != nil {
		return err
	}
	return writeReservation(w, &h)
}

// extendReservation extends the holds of a reservation, after checking that all of them still exist. If a hold expires
// or a worker becomes unreachable after this check, only the other holds are extended, and the error message says so.
func (rs *reservationHandler) extendReservation(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.ExtendReservation
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	ttl, err := holdTime(in.TTLSeconds)
	if err != nil {
		return err
	}
	h, err := rs.reservationOf(r)
	if err == nil {
		err = h.ErrIfEmpty()
	}
	if err == nil {
		err = h.ErrIfIncomplete(bourse.CodeUnavailable, "nothing was extended")
	}
	if err != nil {
		return err
	}
	now := lookup.Reservation{ID: h.ID, Foreign: h.Foreign}
	now.Add(lookup.Ask(r.Context(), rs.Timeout, h.At, lookup.Asking(rs.Workers, &fabric.ReservationExtend, fabric.ExtendHolds{Reservation: h.ID.Key(), TTL: bourse.Duration(ttl)})))
	if err := now.ErrIfIncomplete(bourse.CodeTimeout, "the others were extended"); err != nil {
		return err
	}
	return writeReservation(w, &now)
}

// releaseReservation releases all holds of a reservation. It is idempotent: releasing a missing
// reservation succeeds. Holds on unreachable workers expire automatically.
func (rs *reservationHandler) releaseReservation(w http.ResponseWriter, r *endpoint.Request) error {
	h, err := rs.reservationOf(r) // also checks that the caller may use the reservation
	if err != nil {
		return err
	}
	if len(h.Unresponsive) > 0 && !r.Who.Cluster() {
		return bourse.Errorf(bourse.CodeUnavailable, "reservation %s: %s; nothing was released", h.ID, lookup.UnresponsiveText(h.Unresponsive))
	}
	answers := lookup.Ask(r.Context(), rs.Timeout, h.At, lookup.Asking(rs.Workers, &fabric.ReservationRelease, h.ID.Key()))
	if lost := lookup.Unresponsive(answers); len(lost) > 0 {
		return bourse.Errorf(bourse.CodeTimeout, "reservation %s: %s: the holds on these workers expire automatically if they have not been released; the other workers have released theirs",
			h.ID, lookup.UnresponsiveText(lost))
	}
	return endpoint.WriteOK(w)
}
