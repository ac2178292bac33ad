package fabric

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
)

var (
	// An order for capacity has a path of its own: a worker that knows of no
	// reservations would take it for a machine's.
	routeReserve      = routeOf(PathReserve)
	routeReservation  = routeOf(PathReservation)
	routeExtendHolds  = routeOf(PathExtendHolds)
	routeReleaseHolds = routeOf(PathReleaseHolds)
)

// Holds returns what a reservation holds on the worker now; CodeNotFound:
// nothing.
func (c *Client) Holds(ctx context.Context, to bourse.Member, key bourse.ReservationKey) ([]bourse.Hold, error) {
	return exchange[[]bourse.Hold](ctx, c, to, ask{route: routeReservation, id: string(key)})
}

// ExtendHolds makes all that a reservation holds on the worker end so long from
// now, by the worker's clock. CodeNotFound: nothing is held any more.
func (c *Client) ExtendHolds(ctx context.Context, to bourse.Member, key bourse.ReservationKey, ttl time.Duration) ([]bourse.Hold, error) {
	return exchange[[]bourse.Hold](ctx, c, to, ask{route: routeExtendHolds, id: string(key), body: ExtendHolds{TTL: bourse.Duration(ttl)}})
}

// ReleaseHolds ends all that a reservation holds on the worker, and what it
// asks for later is refused there. It is idempotent.
func (c *Client) ReleaseHolds(ctx context.Context, to bourse.Member, key bourse.ReservationKey) error {
	_, err := exchange[struct{}](ctx, c, to, ask{route: routeReleaseHolds, id: string(key)})
	return err
}
