// Package throttle limits a server's load, and divides scarce resources fairly among
// organizations and addresses:
//
//   - [OrderLimiter] limits how many orders are in progress, and [Rates] limits how many begin
//     each second.
//   - [FairBudget] divides a limited resource among its users without fixed quotas. When the
//     resource is used up, the user that holds the most loses part of it.
//   - [Bodies] limits the memory used by request bodies and replies.
package throttle

import (
	"container/list"
	"context"
	"runtime"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// OrderLimits configures [OrderLimiter]. Zero values stand for defaults.
type OrderLimits struct {
	Concurrency int // maximum number of orders with a turn; default 32 for each processor
	Queue       int // maximum number of orders that wait for a turn; default 4 times Concurrency
	// InProgress is the maximum number of orders in progress, including those whose turn has
	// ended. The default is 16 times Concurrency.
	InProgress   int
	QueueTimeout time.Duration // maximum time that an order waits for a turn; default 1 s
}

func (c OrderLimits) withDefaults() OrderLimits {
	if c.Concurrency <= 0 {
		c.Concurrency = 32 * runtime.GOMAXPROCS(0)
	}
	if c.Queue <= 0 {
		c.Queue = 4 * c.Concurrency
	}
	if c.InProgress <= 0 {
		c.InProgress = 16 * c.Concurrency
	}
	if c.QueueTimeout <= 0 {
		c.QueueTimeout = time.Second
	}
	return c
}

// OrderLimiter limits the number of concurrent orders. Waiting orders are admitted first come, first
// served. It is safe for concurrent use.
//
// An order's turn ends after a limited time, so that other orders can begin. An order that takes
// longer is waiting for something other than this server, such as an image pull or a program's
// answer. It counts as in progress until it ends.
type OrderLimiter struct {
	config OrderLimits

	mu      sync.Mutex
	taken   int
	all     int       // number of orders in progress, with or without a turn
	waiting list.List // the waiting orders (*waiter), oldest first
}

type waiter struct {
	turn chan struct{} // closed when the order receives a turn
}

// NewOrderLimiter returns an OrderLimiter with the given configuration.
func NewOrderLimiter(config OrderLimits) *OrderLimiter {
	return &OrderLimiter{config: config.withDefaults()}
}

// Slot represents an order in progress.
type Slot struct {
	of    *OrderLimiter
	lease *time.Timer
}

// Take waits until the order has a turn. The turn ends when the duration lease has passed. The
// caller must call Done when the order is complete, which also ends the turn. Errors: rate_limited,
// canceled.
func (t *OrderLimiter) Take(ctx context.Context, lease time.Duration) (*Slot, error) {
	t.mu.Lock()
	switch {
	case !t.hasSlot() && (t.all >= t.config.InProgress || t.waiting.Len() >= t.config.Queue):
		n := t.all + t.waiting.Len()
		t.mu.Unlock()
		return nil, bourse.Errorf(bourse.CodeRateLimited, "%d orders are in progress or waiting, as many as this server allows: nothing was done, try again later", n)
	case t.hasSlot():
		t.taken++
		t.all++
		t.mu.Unlock()
	default:
		w := &waiter{turn: make(chan struct{})}
		place := t.waiting.PushBack(w)
		t.mu.Unlock()
		if err := t.wait(ctx, w, place); err != nil {
			return nil, err
		}
	}
	turn := &Slot{of: t}
	turn.lease = time.AfterFunc(lease, func() { t.release(1, 0) })
	return turn, nil
}

// wait waits until w has a turn.
func (t *OrderLimiter) wait(ctx context.Context, w *waiter, place *list.Element) error {
	timer := time.NewTimer(t.config.QueueTimeout)
	defer timer.Stop()
	select {
	case <-w.turn:
		return nil
	case <-timer.C:
	case <-ctx.Done():
	}
	t.mu.Lock()
	select {
	case <-w.turn: // it received a turn in the meantime
		t.mu.Unlock()
		return nil
	default:
	}
	t.waiting.Remove(place)
	t.mu.Unlock()
	if ctx.Err() != nil {
		return bourse.Errorf(bourse.CodeCanceled, "the caller disconnected: %w", context.Cause(ctx))
	}
	return bourse.Errorf(bourse.CodeRateLimited, "the server was busy for %s: nothing was done, try again later", t.config.QueueTimeout)
}

// Load returns the number of orders in progress, and the number of orders that wait for a turn.
func (t *OrderLimiter) Load() (inProgress, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.all, t.waiting.Len()
}

// hasSlot reports whether another order may begin. t.mu must be held.
func (t *OrderLimiter) hasSlot() bool {
	return t.taken < t.config.Concurrency && t.all < t.config.InProgress
}

// release updates the counters after a turn or an order has ended, and admits waiting orders.
func (t *OrderLimiter) release(turns, orders int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken -= turns
	t.all -= orders
	for first := t.waiting.Front(); first != nil && t.hasSlot(); first = t.waiting.Front() {
		t.waiting.Remove(first)
		t.taken++
		t.all++
		close(first.Value.(*waiter).turn)
	}
}

// Done records that the order is complete. It must be called once.
func (t *Slot) Done() {
	turns := 0
	if t.lease.Stop() {
		turns = 1
	}
	t.of.release(turns, 1)
}
