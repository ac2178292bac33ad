package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Reserve holds capacity for all orders or for none. Codes: invalid, not_found
// (an app), insufficient_capacity (the [ReplyError] has the refusals; nothing
// is held), timeout (with a ReplyError its deadline passed, and nothing is held;
// without one the answer was lost: repeat with the same id).
func (c *Client) Reserve(ctx context.Context, in CreateReservation) (Reservation, error) {
	var out Reservation
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("reservations"), in: in, out: &out})
	return out, err
}

// Reservation shows what is held. Codes: invalid, not_found (nothing is).
func (c *Client) Reservation(ctx context.Context, id bourse.ReservationID) (Reservation, error) {
	var out Reservation
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("reservations", string(id)), out: &out})
	return out, err
}

// ExtendReservation makes all that is held end so long from now. Codes:
// invalid, not_found (nothing is held), conflict (a worker holds its part no
// longer: nothing was extended).
func (c *Client) ExtendReservation(ctx context.Context, id bourse.ReservationID, in ExtendReservation) (Reservation, error) {
	var out Reservation
	_, err := c.do(ctx, call{method: http.MethodPatch, path: path("reservations", string(id)), in: in, out: &out})
	return out, err
}

// ReleaseReservation ends all that is held. It is idempotent. Codes: invalid,
// timeout (a worker has not confirmed it: what it holds ends by itself).
func (c *Client) ReleaseReservation(ctx context.Context, id bourse.ReservationID) error {
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("reservations", string(id))})
	return err
}
