package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Holder is what a broker asks of workers about what they hold. The broker
// itself keeps nothing of it: a reservation's id names its workers.
type Holder interface {
	// Holds gives what a reservation holds on the worker; CodeNotFound: nothing.
	Holds(ctx context.Context, to bourse.Member, key bourse.ReservationKey) ([]bourse.Hold, error)
	// ExtendHolds makes that end so long from now; CodeNotFound: it has ended.
	ExtendHolds(ctx context.Context, to bourse.Member, key bourse.ReservationKey, ttl time.Duration) ([]bourse.Hold, error)
	// ReleaseHolds ends it, now and for ever. It is idempotent.
	ReleaseHolds(ctx context.Context, to bourse.Member, key bourse.ReservationKey) error
}

// held is what could be found out of a reservation.
type held struct {
	id     bourse.ReservationID
	at     []bourse.Member // known workers of it
	holds  []bourse.Hold   // in the order of the request
	gone   []string        // workers, or tags of unknown ones, that hold nothing for it
	silent []bourse.WorkerID
}

// reservationOf asks the workers that the path's reservation names. Codes:
// invalid, not_found (whose it is stays unsaid).
func (b *Broker) reservationOf(r *request) (held, error) {
	h := held{id: bourse.ReservationID(r.PathValue("reservation"))}
	if err := h.id.Validate(); err != nil {
		return h, err
	}
	for _, tag := range h.id.Workers() {
		if m, ok := b.Directory.ByTag(tag); ok {
			h.at = append(h.at, m)
		} else if a, ok := b.absentTag(tag); ok && !a.Lost(b.Now()) {
			h.silent = append(h.silent, a.ID)
		} else {
			h.gone = append(h.gone, tag.String())
		}
	}
	h.add(ask(r.Context(), b.Patience, h.at, func(ctx context.Context, to bourse.Member) ([]bourse.Hold, error) {
		return b.Workers.Holds(ctx, to, h.id.Key())
	}))
	if !r.who.Cluster() {
		for i := range h.holds {
			if app, err := b.usable(r, h.holds[i].App); err != nil || !h.holds[i].OwnedBy(&app) {
				return h, errNoReservation(h.id)
			}
		}
		if len(h.holds) == 0 && !b.reserved(r, h.id.Key()) {
			return h, errNoReservation(h.id)
		}
	}
	return h, nil
}

// reserved reports whether a reservation is one of an app that the caller may
// use, by its key alone: nothing is left of it, or no one answers.
func (b *Broker) reserved(r *request, key bourse.ReservationKey) bool {
	apps, _, err := b.apps.list(r.Context(), nil)
	if app, errDefault := b.apps.recall(r.Context(), DefaultApp); errDefault == nil {
		apps = append(apps, app)
	}
	return err == nil && slices.ContainsFunc(apps, func(app bourse.App) bool { return r.who.may(app) && key.In(app.ID) == key })
}

// add notes what workers have answered.
func (h *held) add(answers []answer[[]bourse.Hold]) {
	for _, a := range answers {
		switch {
		case a.err == nil:
			h.holds = append(h.holds, a.got...)
		case bourse.CodeOf(a.err) == bourse.CodeNotFound:
			h.gone = append(h.gone, string(a.from.ID))
		default:
			h.silent = append(h.silent, a.from.ID)
		}
	}
	slices.SortFunc(h.holds, func(x, y bourse.Hold) int {
		return cmp.Or(cmp.Compare(x.Index, y.Index), cmp.Compare(x.Worker, y.Worker), cmp.Compare(x.Order, y.Order))
	})
}

// none reports that nothing of the reservation was found.
func (h *held) none() error {
	switch {
	case len(h.holds) > 0:
		return nil
	case len(h.silent) > 0:
		return bourse.Errorf(bourse.CodeUnavailable, "reservation %s: %s", h.id, doNotAnswer(h.silent))
	}
	return errNoReservation(h.id)
}

func (h *held) reply(w http.ResponseWriter) error {
	out := machinesapi.FromHolds(h.id, h.holds)
	out.Gone = h.gone
	showSilent(w.Header(), h.silent)
	return writeJSON(w, http.StatusOK, out)
}

func (b *Broker) getReservation(w http.ResponseWriter, r *request) error {
	h, err := b.reservationOf(r)
	if err == nil {
		err = h.none()
	}
	if err != nil {
		return err
	}
	return h.reply(w)
}

// extendReservation extends all parts or none, as far as it can be known
// before: a part may end, or its worker fall silent, between the asking and the
// extending, and then the error says so.
func (b *Broker) extendReservation(w http.ResponseWriter, r *request) error {
	var in machinesapi.ExtendReservation
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	ttl, err := holdTime(in.TTLSeconds)
	if err != nil {
		return err
	}
	h, err := b.reservationOf(r)
	if err == nil {
		err = h.none()
	}
	if err == nil {
		err = h.whole(bourse.CodeUnavailable, "nothing was extended")
	}
	if err != nil {
		return err
	}
	now := held{id: h.id}
	now.add(ask(r.Context(), b.Patience, h.at, func(ctx context.Context, to bourse.Member) ([]bourse.Hold, error) {
		return b.Workers.ExtendHolds(ctx, to, h.id.Key(), ttl)
	}))
	if err := now.whole(bourse.CodeTimeout, "the others were extended"); err != nil {
		return err
	}
	return now.reply(w)
}

// whole reports which workers hold their part no longer (CodeConflict), or do
// not say.
func (h *held) whole(silence bourse.Code, so string) error {
	switch {
	case len(h.gone) > 0:
		return bourse.Errorf(bourse.CodeConflict, "reservation %s: worker %s holds its part no longer; %s", h.id, strings.Join(h.gone, ", "), so)
	case len(h.silent) > 0:
		return bourse.Errorf(silence, "reservation %s: %s; %s", h.id, doNotAnswer(h.silent), so)
	}
	return nil
}

// releaseReservation is idempotent: what is not there is released. What a
// worker that cannot be told holds ends by itself.
func (b *Broker) releaseReservation(w http.ResponseWriter, r *request) error {
	h, err := b.reservationOf(r) // whose it is
	if err != nil {
		return err
	}
	if len(h.silent) > 0 && !r.who.Cluster() {
		return bourse.Errorf(bourse.CodeUnavailable, "reservation %s: %s; nothing was released", h.id, doNotAnswer(h.silent))
	}
	answers := ask(r.Context(), b.Patience, h.at, func(ctx context.Context, to bourse.Member) (struct{}, error) {
		return struct{}{}, b.Workers.ReleaseHolds(ctx, to, h.id.Key())
	})
	if lost := silent(answers); len(lost) > 0 {
		return bourse.Errorf(bourse.CodeTimeout, "reservation %s: %s: what they hold ends by itself if they have not heard; the others have released it",
			h.id, doNotAnswer(lost))
	}
	return writeOK(w)
}

func doNotAnswer(ids []bourse.WorkerID) string {
	names := make([]string, len(ids))
	for i, id := range ids {
		names[i] = string(id)
	}
	return "no answer from worker " + strings.Join(names, ", ")
}

func errNoReservation(id bourse.ReservationID) error {
	return bourse.Errorf(bourse.CodeNotFound, "reservation %s not found: it has expired, was released, or never was", id)
}
