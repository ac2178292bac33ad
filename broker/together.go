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
	maxAsking  = 256             // proxies' requests that are worked on
	maxPlacing = 32              // orders of them in progress
	stands     = 5 * time.Second // an order that was filled, until all proxies know its machine
)

// together makes one order of those for the like of a machine. The zero value is ready.
type together struct {
	mu      sync.Mutex
	asking  int
	placing int
	orders  map[failoverKey]*shared
}

// failoverKey is what such orders have in common: an app's machines of a region that have one
// config are as good as each other to those who ask them.
type failoverKey struct {
	app    string
	region bourse.Region
	config [sha256.Size]byte
}

func kindOf(order *bourse.Order) (failoverKey, error) {
	config, err := json.Marshal(&order.Config)
	if err != nil {
		return failoverKey{}, bourse.Errorf(bourse.CodeInternal, "encode a config: %w", err)
	}
	return failoverKey{order.App.ID, order.Regions[0][0], sha256.Sum256(config)}, nil
}

// shared is an order with all who wait for it.
type shared struct {
	id     bourse.OrderID
	cancel context.CancelFunc
	done   chan struct{} // closed when the rest is set
	got    fabric.FailoverOrder
	err    error

	waiting int       // guarded by together.mu, as is until; the order is given up when none is left
	until   time.Time // from when on it does not stand; zero while it is in progress
}

// enter counts a request. Codes: rate_limited.
func (t *together) enter() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking == maxAsking {
		return bourse.Errorf(bourse.CodeRateLimited, "%d requests of proxies for machines are in progress", maxAsking)
	}
	t.asking++
	return nil
}

func (t *together) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking--
}

// do has an order placed, or returns what became of another of its kind: of one in
// progress, or of one that was filled a moment ago. The first caller carries it out,
// for as long as anyone waits. Codes: those of place; rate_limited, canceled.
func (t *together) do(ctx context.Context, order *bourse.Order, place func(context.Context) (fabric.FailoverOrder, error)) (fabric.FailoverOrder, error) {
	k, err := kindOf(order)
	if err != nil {
		return fabric.FailoverOrder{}, err
	}
	s, work, err := t.join(ctx, k, order.ID)
	if err != nil {
		return fabric.FailoverOrder{}, err
	}
	stop := context.AfterFunc(ctx, func() { t.giveUp(s) })
	defer stop()
	if work != nil {
		got, err := place(work)
		t.end(k, s, got, err)
	}
	select {
	case <-s.done:
		return s.got, s.err
	case <-ctx.Done():
		return fabric.FailoverOrder{Order: s.id}, bourse.Errorf(bourse.CodeCanceled, "the proxy left: %w", context.Cause(ctx))
	}
}

// join returns the order of a kind, and for the caller that is to carry it out the
// context to do so in.
func (t *together) join(ctx context.Context, k failoverKey, id bourse.OrderID) (s *shared, work context.Context, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	for k, s := range t.orders { // few: each stands for seconds
		if !s.until.IsZero() && !now.Before(s.until) {
			delete(t.orders, k)
		}
	}
	if s = t.orders[k]; s != nil && (s.waiting > 0 || !s.until.IsZero()) {
		s.waiting++
		return s, nil, nil
	}
	if t.placing == maxPlacing {
		return nil, nil, bourse.Errorf(bourse.CodeRateLimited, "%d orders for proxies are in progress", maxPlacing)
	}
	if t.orders == nil {
		t.orders = map[failoverKey]*shared{}
	}
	s = &shared{id: id, done: make(chan struct{}), waiting: 1}
	work, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
	t.orders[k] = s
	t.placing++
	return s, work, nil
}

// giveUp is called when one who waits has left.
func (t *together) giveUp(s *shared) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s.waiting--; s.waiting == 0 {
		s.cancel()
	}
}

// end says what became of an order. A refusal stands for those who wait alone.
func (t *together) end(k failoverKey, s *shared, got fabric.FailoverOrder, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.cancel()
	s.got, s.err = got, err
	t.placing--
	if err == nil {
		s.until = time.Now().Add(stands)
	} else if t.orders[k] == s {
		delete(t.orders, k)
	}
	close(s.done)
}
