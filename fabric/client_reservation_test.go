package fabric_test

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// reservationCalls are the calls about what is held. An order for capacity has
// a path of its own, which a worker that knows no reservations does not serve.
func reservationCalls() []clientCall {
	const key, url = bourse.ReservationKey("01J00000000000000000000000"), "/worker/reservations/01J00000000000000000000000"
	hold := bourse.Hold{Order: key.Order(0), Reservation: key, Worker: "w1", Takes: bourse.Amounts{{Resource: "memory", Amount: 7}}}
	claim := bourse.Claim{Order: bourse.Order{ID: hold.Order, Hold: &bourse.HoldOrder{Reservation: key, TTL: bourse.Duration(time.Minute)}}}
	fill := fabric.ClaimReply{Fill: &bourse.Fill{Hold: &hold}}
	return []clientCall{
		{fabric.PathReserve, "/worker/reserve", claim, fill, func(ctx context.Context, c *fabric.Client) (any, error) {
			f, r, err := c.Claim(ctx, w1, &claim)
			return fabric.ClaimReply{Fill: f, Refusal: r}, err
		}},
		{fabric.PathReservation, url, nil, []bourse.Hold{hold}, func(ctx context.Context, c *fabric.Client) (any, error) { return c.Holds(ctx, w1, key) }},
		{fabric.PathExtendHolds, url, fabric.ExtendHolds{TTL: bourse.Duration(time.Minute)}, []bourse.Hold{hold}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return c.ExtendHolds(ctx, w1, key, time.Minute)
		}},
		{fabric.PathReleaseHolds, url, nil, struct{}{}, func(ctx context.Context, c *fabric.Client) (any, error) {
			return struct{}{}, c.ReleaseHolds(ctx, w1, key)
		}},
	}
}
