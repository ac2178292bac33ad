package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// claimer quotes and fills the orders of one kind. A claim is answered when what
// fills the order is there, or when ctx ends; what was begun then goes on, and
// the order's id finds or cancels it.
type claimer interface {
	Quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error)
	Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error)
}

// claimerOf returns who fills the orders of a kind.
func (w *Worker) claimerOf(kind bourse.Kind) claimer {
	switch kind {
	case bourse.KindVolume:
		return w.volumes
	case bourse.KindTask:
		return w.tasks
	case bourse.KindHold:
		return w.holds
	case bourse.KindMachine:
	}
	return w.machines
}

// quote answers an order from the worker's own truth. It holds nothing and
// writes nothing.
func (w *Worker) quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	return w.claimerOf(order.Kind()).Quote(ctx, order)
}

// claim fills an order here, or returns the refusal.
func (w *Worker) claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	return w.claimerOf(c.Order.Kind()).Claim(ctx, c)
}
