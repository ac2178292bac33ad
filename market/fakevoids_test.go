package market_test

import (
	"context"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Voids is the part of the view where cancellations wait for their workers.
// It outlives brokers.
type Voids struct {
	c *Cluster

	mu   sync.Mutex
	list map[bourse.OrderID][]bourse.WorkerID
	full error
}

var _ market.Voids = (*Voids)(nil)

// NewVoids makes an empty one, for any number of brokers.
func (c *Cluster) NewVoids() *Voids {
	return &Voids{c: c, list: map[bourse.OrderID][]bourse.WorkerID{}}
}

// Fail makes writing fail with err from now on; nil repairs it.
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

// Apply makes every worker read and carry out its cancellations, as one does that is back.
func (v *Voids) Apply() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for order, ids := range v.list {
		for _, id := range ids {
			v.c.workers[id].cancel(order)
		}
	}
}
