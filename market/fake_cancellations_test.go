package market_test

import (
	"context"
	"slices"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/market"
)

// Cancellations is a CancellationStore that takes the place of the view. It outlives brokers.
type Cancellations struct {
	c *Cluster

	mu   sync.Mutex
	list map[bourse.OrderID][]bourse.WorkerID
	full error
}

var _ market.CancellationStore = (*Cancellations)(nil)

// NewCancellations returns an empty store, which any number of brokers may use.
func (c *Cluster) NewCancellations() *Cancellations {
	return &Cancellations{c: c, list: map[bourse.OrderID][]bourse.WorkerID{}}
}

// Fail makes writes fail with err. If err is nil, they succeed again.
func (v *Cancellations) Fail(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.full = err
}

// RecordCancellation implements market.CancellationStore.
func (v *Cancellations) RecordCancellation(ctx context.Context, order bourse.OrderID, worker bourse.WorkerID) error {
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

// CanceledOn implements market.CancellationStore.
func (v *Cancellations) CanceledOn(_ context.Context, order bourse.OrderID) ([]bourse.WorkerID, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Clone(v.list[order]), nil
}

// Apply makes every worker apply the cancellations that are recorded for it, as if it had just
// returned.
func (v *Cancellations) Apply() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for order, ids := range v.list {
		for _, id := range ids {
			v.c.workers[id].cancel(order)
		}
	}
}
