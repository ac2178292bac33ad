package proxy

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/trace"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Orders places orders for machines on other hosts. The proxy places an order if none of the app's machines can be
// started for a request because their hosts are full.
type Orders interface {
	// Order orders a copy of a machine on another host, and starts the copy. app is the ID of the machine's app. Once
	// the order has an ID, the result contains the ID even if Order returns an error. If possible, concurrent calls
	// from several proxies return the same machine. Order may return errors with any code; insufficient_capacity
	// means that no worker accepted the order.
	Order(ctx context.Context, app string, machine bourse.MachineID) (fabric.FailoverOrder, error)
}

// Limits for orders. The result of an order is reused for other requests for the same target. A new machine is reused
// for orderValidity, which is long enough for the machine to appear in the routing table. A refusal or an error is
// reused for refusalValidity, so that not every request places another order.
const (
	orderValidity   = 10 * time.Second
	refusalValidity = time.Second
	maxOrders       = 64 // maximum number of orders in progress for all targets together
)

// orders ensures that at most one order is in progress for each target, no matter how many requests are waiting.
type orders struct {
	mu         sync.Mutex
	inProgress int
	byTarget   map[route.Key]*failoverOrder
}

type failoverOrder struct {
	done  chan struct{} // closed when the other fields are set
	got   fabric.FailoverOrder
	err   error
	until time.Time // when the result is no longer reused; zero while the order is in progress
}

// join returns the order to use for a target. If first is true, the order is new, and the caller must place it. If
// too many orders are in progress, join returns nil.
func (o *orders) join(k route.Key, now time.Time) (s *failoverOrder, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s = o.byTarget[k]; s != nil && (s.until.IsZero() || now.Before(s.until)) {
		return s, false
	}
	if o.inProgress == maxOrders {
		return nil, false
	}
	for k, s := range o.byTarget { // the map is small, because each result expires within seconds
		if !s.until.IsZero() && !now.Before(s.until) {
			delete(o.byTarget, k)
		}
	}
	if o.byTarget == nil {
		o.byTarget = map[route.Key]*failoverOrder{}
	}
	s = &failoverOrder{done: make(chan struct{})}
	o.byTarget[k] = s
	o.inProgress++
	return s, true
}

func (o *orders) end(s *failoverOrder, got fabric.FailoverOrder, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	s.got, s.err = got, err
	validity := orderValidity
	if err != nil {
		validity = refusalValidity
	}
	s.until = time.Now().Add(validity)
	o.inProgress--
	close(s.done)
}

// failover orders a machine on another host if the request cannot be served because the hosts of the app's machines
// are full. It reports whether the request should be sent to the new machine. If it returns an error, this error
// replaces the failed attempt's error.
func (p *Proxy) failover(x *exchange, t *attempt) (bool, error) {
	if p.Orders == nil || bourse.CodeOf(t.err) != bourse.CodeInsufficient || t.stage == stageSend || x.ordered || x.criteria.Only || x.clientLeft() || x.replay.expired() {
		return false, nil
	}
	like := x.latest.backend
	if !like.Service.Autostart || !x.body.replayable() {
		return false, nil
	}
	x.ordered = true
	s, first := p.orders.join(x.target.Key(), time.Now())
	if s == nil {
		return false, nil
	}
	if first {
		// Continue even if this client disconnects, because other requests may wait for the
		// machine.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.in.Context()), p.Limits.Ready)
		ctx, span := trace.Start(ctx, "order")
		got, err := p.Orders.Order(ctx, x.target.App.ID, like.Machine)
		span.Set("bourse.order", string(got.Order))
		span.End(err)
		cancel()
		p.orders.end(s, got, err)
		p.Log.Info("machine ordered for request", "request", x.id, "app", x.app(), "like", like.Machine, "machine", got.Machine, "order", got.Order, "err", err)
	}
	select {
	case <-s.done:
	case <-x.in.Context().Done():
		return false, x.in.Context().Err()
	}
	if s.err != nil {
		text := "no machine could be started: its host is full, and ordering one on another host failed"
		if s.got.Order != "" {
			text = "no machine could be started: its host is full, and no other worker accepted order " + string(s.got.Order)
		}
		return false, &statusError{status: http.StatusServiceUnavailable, text: text, err: s.err}
	}
	like.Machine, like.Instance, like.Worker, like.Region = s.got.Machine, s.got.Instance, s.got.Worker, s.got.Region
	like.State, like.Reachable, like.Cordoned, like.Failing, like.Unchecked = bourse.StateStarted, true, false, "", false
	only := *x.target
	only.Backends, only.Fixed = []route.Backend{like}, true
	x.setTarget(&only, Criteria{})
	p.Metrics.Repeated(x.app(), "order")
	return true, nil
}
