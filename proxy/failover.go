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

// Orders has machines made for requests that no machine can be started for.
type Orders interface {
	// Order returns a machine as this one of the app with this id is, on another host,
	// which starts; and the order's id, with an error as well if it came to have one.
	// Proxies that ask at the same moment get the same machine, if they can. Codes: any;
	// insufficient_capacity (no worker took it).
	Order(ctx context.Context, app string, like bourse.MachineID) (fabric.FailoverOrder, error)
}

// How long a target's order stands for further requests: until its machine is among
// what is routed, and so that a refusal is not asked for by each request again.
const (
	orderValidity   = 10 * time.Second
	refusalValidity = time.Second
	maxOrders       = 64 // in progress, of all targets
)

// orders has one order in progress for a target, however many requests wait.
type orders struct {
	mu         sync.Mutex
	inProgress int
	byTarget   map[route.Key]*failoverOrder
}

type failoverOrder struct {
	done  chan struct{} // closed when the rest is set
	got   fabric.FailoverOrder
	err   error
	until time.Time // from when on it does not stand; zero while it is in progress
}

// join returns the order of a target, and whether the caller is to carry it out.
func (o *orders) join(k route.Key, now time.Time) (s *failoverOrder, first bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if s = o.byTarget[k]; s != nil && (s.until.IsZero() || now.Before(s.until)) {
		return s, false
	}
	if o.inProgress == maxOrders {
		return nil, false
	}
	for k, s := range o.byTarget { // few: each stands for seconds
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
	stands := orderValidity
	if err != nil {
		stands = refusalValidity
	}
	s.until = time.Now().Add(stands)
	o.inProgress--
	close(s.done)
}

// elsewhere has another machine ordered for a request that no machine could be
// started for as their hosts are full, and reports whether the request goes on
// there. The error is what the client is told otherwise; nil: what it was told
// before.
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
		// What is ordered is of use to those who wait, too, when this client leaves.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(x.in.Context()), p.Limits.Ready)
		ctx, span := trace.Start(ctx, "order")
		got, err := p.Orders.Order(ctx, x.target.App.ID, like.Machine)
		span.Set("bourse.order", string(got.Order))
		span.End(err)
		cancel()
		p.orders.end(s, got, err)
		p.Log.Info("machine ordered for requests", "request", x.id, "app", x.app(), "like", like.Machine, "machine", got.Machine, "order", got.Order, "err", err)
	}
	select {
	case <-s.done:
	case <-x.in.Context().Done():
		return false, x.in.Context().Err()
	}
	if s.err != nil {
		text := "no machine could be started: its host is full, and no other could be ordered"
		if s.got.Order != "" {
			text = "no machine could be started: its host is full, and no worker took the order for another, " + string(s.got.Order)
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
