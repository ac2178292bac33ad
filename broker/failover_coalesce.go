package broker

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

const (
	maxCallers = 256             // limit on concurrent requests from proxies
	maxPlacing = 32              // limit on concurrent orders for those requests
	reuseFor   = 5 * time.Second // how long a filled order is reused; by then, all proxies know its machine
)

// coalescer combines orders for copies of equivalent machines. The zero value is ready to use.
type coalescer struct {
	mu      sync.Mutex
	asking  int
	placing int
	orders  map[failoverKey]*sharedOrder
}

// failoverKey identifies a set of equivalent machines, which have the same app, region and config.
type failoverKey struct {
	app    string
	region bourse.Region
	config [sha256.Size]byte
}

func failoverKeyOf(order *bourse.Order) (failoverKey, error) {
	config, err := json.Marshal(&order.Config)
	if err != nil {
		return failoverKey{}, bourse.Errorf(bourse.CodeInternal, "encode a config: %w", err)
	}
	return failoverKey{order.App.ID, order.Regions[0][0], sha256.Sum256(config)}, nil
}

// sharedOrder is an order together with the callers that wait for it.
type sharedOrder struct {
	id     bourse.OrderID
	cancel context.CancelFunc
	done   chan struct{} // closed after got and err have been set
	got    fabric.FailoverOrder
	err    error

	waiting int       // number of waiting callers; when it drops to 0, the order is canceled; guarded by coalescer.mu
	until   time.Time // time until which a filled order is reused; zero while the order is in progress; guarded by coalescer.mu
}

// enter counts a request from a proxy. The caller must call leave when the request ends. Errors:
// rate_limited.
func (t *coalescer) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking == maxCallers {
		return bourse.Errorf(bourse.CodeRateLimited, "%d machine requests from proxies are already in progress", maxCallers)
	}
	t.asking++
	return nil
}

func (t *coalescer) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking--
}

// do places an order, or returns the result of an equivalent order that is in progress or was filled recently. Only
// the first caller runs place. The context passed to place is canceled once no callers are waiting. Errors: those of
// place, rate_limited, canceled.
func (t *coalescer) do(ctx context.Context, order *bourse.Order, place func(context.Context) (fabric.FailoverOrder, error)) (fabric.FailoverOrder, error) {
	k, err := failoverKeyOf(order)
	if err != nil {
		return fabric.FailoverOrder{}, err
	}
	s, work, err := t.join(ctx, k, order.ID)
	if err != nil {
		return fabric.FailoverOrder{}, err
	}
	stop := context.AfterFunc(ctx, func() { t.abandon(s) })
	defer stop()
	if work != nil {
		got, err := place(work)
		t.end(k, s, got, err)
	}
	select {
	case <-s.done:
		return s.got, s.err
	case <-ctx.Done():
		return fabric.FailoverOrder{Order: s.id}, bourse.Errorf(bourse.CodeCanceled, "the proxy disconnected: %w", context.Cause(ctx))
	}
}

// join returns the order for a key, creating it if there is none. If the order is new, the caller
// must place it, using the context returned as work. Otherwise, work is nil.
func (t *coalescer) join(ctx context.Context, k failoverKey, id bourse.OrderID) (s *sharedOrder, work context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for k, s := range t.orders { // the map is small, because an order is reused for only a few seconds
		if !s.until.IsZero() && !now.Before(s.until) {
			delete(t.orders, k)
		}
	}
	if s = t.orders[k]; s != nil && (s.waiting > 0 || !s.until.IsZero()) {
		s.waiting++
		return s, nil, nil
	}
	if t.placing == maxPlacing {
		return nil, nil, bourse.Errorf(bourse.CodeRateLimited, "%d orders for proxies are already in progress", maxPlacing)
	}
	if t.orders == nil {
		t.orders = map[failoverKey]*sharedOrder{}
	}
	s = &sharedOrder{id: id, done: make(chan struct{}), waiting: 1}
	work, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.orders[k] = s
	t.placing++
	return s, work, nil
}

// abandon records that a waiting caller has disconnected. If no other caller is waiting, it cancels
// the order.
func (t *coalescer) abandon(s *sharedOrder) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.waiting--; s.waiting == 0 {
		s.cancel()
	}
}

// end sets an order's result. If the order was filled, later callers reuse the result. An error is returned only to the
// callers that are already waiting.
func (t *coalescer) end(k failoverKey, s *sharedOrder, got fabric.FailoverOrder, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.cancel()
	s.got, s.err = got, err
	t.placing--
	if err == nil {
		s.until = time.Now().Add(reuseFor)
	} else if t.orders[k] == s {
		delete(t.orders, k)
	}
	close(s.done)
}
