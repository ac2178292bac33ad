package fabric

import (
	"context"

	"github.com/bourse-dev/bourse"
)

var (
	routeClaim  = routeOf(PathClaim)
	routeStream = routeOf(PathClaimStream)
	routeCancel = routeOf(PathCancel)
	routeOrder  = routeOf(PathOrder)
)

// Claim fills the order on one worker, or returns its refusal. After an error
// with CodeUnavailable the worker has not taken the claim; after any other
// error that no worker answered with, the outcome is unknown.
func (c *Client) Claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	reply, err := c.claim(ctx, to, claim)
	if err != nil {
		return nil, nil, err
	}
	if (reply.Fill == nil) == (reply.Refusal == nil) {
		return nil, nil, bourse.Errorf(bourse.CodeInternal, "worker %s answered a claim with neither yes nor no", to.ID)
	}
	return reply.Fill, reply.Refusal, nil
}

func (c *Client) claim(ctx context.Context, to bourse.Member, claim *bourse.Claim) (ClaimReply, error) {
	order := &claim.Order
	switch {
	case order.Kind() == bourse.KindHold:
		return exchange[ClaimReply](ctx, c, to, ask{route: routeReserve, body: claim})
	case order.Kind() == bourse.KindTask && order.Task.Output != nil:
		return streamClaim(ctx, c, to, ask{route: routeStream, body: claim})
	}
	return exchange[ClaimReply](ctx, c, to, ask{route: routeClaim, body: claim})
}

// Cancel makes sure that the order is not filled by this worker, now or later.
// It is idempotent.
func (c *Client) Cancel(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Cancellation, error) {
	return exchange[bourse.Cancellation](ctx, c, to, ask{route: routeCancel, id: string(order), body: struct{}{}})
}

// Order returns the decision of an order that the worker filled, or
// CodeNotFound.
func (c *Client) Order(ctx context.Context, to bourse.Member, order bourse.OrderID) (bourse.Decision, error) {
	return exchange[bourse.Decision](ctx, c, to, ask{route: routeOrder, id: string(order)})
}
