package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// quote answers an order from the worker's own records. It holds and writes nothing.
func (w *Worker) quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	if order.Warm() {
		return w.tasks.Quote(ctx, order)
	}
	return w.host.Quote(ctx, w.store, order)
}

// claim fills an order here, or returns the refusal. It returns once the order is
// filled, or when ctx ends; the operation then continues, and the order's id finds or
// cancels it.
func (w *Worker) claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	switch c.Order.Kind() {
	case bourse.KindVolume:
		return w.volumes.Claim(ctx, c)
	case bourse.KindTask:
		return w.tasks.Claim(ctx, c)
	case bourse.KindHold:
		return w.holds.Claim(ctx, c)
	case bourse.KindMachine:
	}
	return w.machines.Claim(ctx, c)
}
