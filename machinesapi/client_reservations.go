package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Reservations is capacity that is held, as a client reaches it.
type Reservations struct {
	Client *Client
}

// Reservations returns the client's way to reservations.
func (c *Client) Reservations() Reservations { return Reservations{c} }

// Create holds capacity for all orders or for none. Codes: invalid, not_found
// (an app), insufficient_capacity (the [ReplyError] has the refusals; nothing
// is held), timeout (with a ReplyError its deadline passed, and nothing is held;
// without one the answer was lost: repeat with the same id).
func (r Reservations) Create(ctx context.Context, in CreateReservation) (Reservation, error) {
	var out Reservation
	_, err := r.Client.do(ctx, call{method: http.MethodPost, path: path("reservations"), in: in, out: &out})
	return out, err
}

// List lists those of the apps that the token may use, and the workers that
// did not answer: what they hold is missing.
func (r Reservations) List(ctx context.Context) ([]Reservation, []bourse.WorkerID, error) {
	var out []Reservation
	reply, err := r.Client.do(ctx, call{method: http.MethodGet, path: path("reservations"), out: &out})
	if err != nil {
		return nil, nil, err
	}
	return out, silentOf(reply), nil
}

// Get shows what is held. Codes: invalid, not_found (nothing is).
func (r Reservations) Get(ctx context.Context, id bourse.ReservationID) (Reservation, error) {
	var out Reservation
	_, err := r.Client.do(ctx, call{method: http.MethodGet, path: path("reservations", string(id)), out: &out})
	return out, err
}

// Extend makes all that is held end so long from now. Codes:
// invalid, not_found (nothing is held), conflict (a worker holds its part no
// longer: nothing was extended).
func (r Reservations) Extend(ctx context.Context, id bourse.ReservationID, in ExtendReservation) (Reservation, error) {
	var out Reservation
	_, err := r.Client.do(ctx, call{method: http.MethodPatch, path: path("reservations", string(id)), in: in, out: &out})
	return out, err
}

// Release ends all that is held. It is idempotent. Codes: invalid,
// timeout (a worker has not confirmed it: what it holds ends by itself).
func (r Reservations) Release(ctx context.Context, id bourse.ReservationID) error {
	_, err := r.Client.do(ctx, call{method: http.MethodDelete, path: path("reservations", string(id))})
	return err
}
