package market_test

import (
	"context"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Voids stands for the part of the view that stores undelivered cancellations. It
// outlives brokers.
type Voids struct {
	c *Cluster

	mu   sync.Mutex
	list map[bourse.OrderID][]bourse.WorkerID
	full error
}

var _ market.Voids = (*Voids)(nil)

// NewVoids returns an empty Voids for any number of brokers.
func (c *Cluster) NewVoids() *Voids {
	return &Voids{c: c, list: map[bourse.OrderID][]bourse.WorkerID{}}
}

// Fail makes writes fail with err. Nil makes them succeed again.
func (v *Voids) Fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.full = err
}

// Void implements market.Voids.
func (v *Voids) Void(ctx context.Context, order bourse.OrderID, worker bourse.WorkerID) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if v.full != nil {
		return v.full
	}
	if !slices.Contains(v.list[order], worker) {
		v.list[order] = append(v.list[order], worker)
	}
	return nil
}

// Voided implements market.Voids.
func (v *Voids) Voided(_ context.Context, order bourse.OrderID) ([]bourse.WorkerID, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.list[order]), nil
}

// Apply makes every worker apply its cancellations, like a worker that has returned.
func (v *Voids) Apply() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for order, ids := range v.list {
		for _, id := range ids {
			v.c.workers[id].cancel(order)
		}
	}
}
