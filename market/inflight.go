package market

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
)

// inflight contains the orders that are being placed now. It combines concurrent calls with the
// same order ID, so that they lead to a single claim (invariant 7).
type inflight struct {
	mu  sync.Mutex
	now map[bourse.OrderID]*call
}

// call is an order in progress, with the callers that wait for it. When the last caller stops waiting, the order is
// canceled.
type call struct {
	id     bourse.OrderID
	end    context.CancelFunc // cancels the order's context
	detach func() bool        // stops watching the first caller's context

	done     chan struct{} // closed once the following fields are set
	fill     bourse.Fill
	holds    []bourse.Hold // set only for a whole reservation, which has its own call in addition to those of its orders
	decision bourse.Decision
	err      error

	at atomic.Pointer[bourse.Member] // worker to which the latest claim was sent; in a race, the first of these workers

	callers int // number of waiting callers; guarded by inflight.mu
}

// claiming returns the worker to which the most recent claim for an order in progress was sent.
func (s *inflight) claiming(id bourse.OrderID) (bourse.Member, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.now[id]; f != nil {
		if at := f.at.Load(); at != nil {
			return *at, true
		}
	}
	return bourse.Member{}, false
}

// join starts a call for the order and returns the context to use for placing it. The caller must call finish when the
// order has been placed or has failed. If the order already has a call, join adds the caller to it and returns a nil
// context.
func (s *inflight) join(ctx context.Context, id bourse.OrderID, soft time.Time) (*call, context.Context, error) {
	for {
		f, work, abandoned := s.tryJoin(ctx, id, soft)
		if !abandoned {
			return f, work, nil
		}
		// All callers that waited for the order have disconnected, and the order is being canceled. A claim sent now
		// would be canceled with it, so wait until the previous call has ended.
		select {
		case <-f.done:
		case <-ctx.Done():
			return nil, nil, errCallerGone(ctx.Err())
		}
	}
}

func (s *inflight) tryJoin(ctx context.Context, id bourse.OrderID, soft time.Time) (f *call, work context.Context, abandoned bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f = s.now[id]; f != nil {
		if f.callers == 0 {
			return f, nil, true
		}
		f.callers++
		return f, nil, false
	}
	f = &call{id: id, done: make(chan struct{}), callers: 1}
	// The order's context must outlive its first caller's context, because other callers may be waiting for the order.
	work, f.end = context.WithDeadline(context.WithoutCancel(ctx), soft)
	f.detach = context.AfterFunc(ctx, func() { s.leave(f) })
	if s.now == nil {
		s.now = map[bourse.OrderID]*call{}
	}
	s.now[id] = f
	return f, work, false
}

func (s *inflight) leave(f *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f.callers--; f.callers == 0 {
		f.end()
	}
}

// finish ends a call after its result has been set, and makes the result available to the waiting callers.
func (s *inflight) finish(f *call) {
	s.mu.Lock()
	delete(s.now, f.id)
	s.mu.Unlock()
	f.detach()
	f.end()
	close(f.done)
}

// wait waits for the result of a call that was started by another caller.
func (s *inflight) wait(ctx context.Context, f *call, order *bourse.Order) (bourse.Fill, bourse.Decision, error) {
	if err := s.await(ctx, f); err != nil {
		return bourse.Fill{}, abandoned(order), err
	}
	fill := f.fill
	fill.Repeated = f.err == nil
	return fill, f.decision, f.err
}

// await waits until a call that was started by another caller has ended, or until ctx is
// done.
func (s *inflight) await(ctx context.Context, f *call) error {
	stay := context.AfterFunc(ctx, func() { s.leave(f) })
	defer stay()
	select {
	case <-f.done:
		return nil
	case <-ctx.Done():
		return errCallerGone(ctx.Err())
	}
}

// abandoned returns the decision about an order whose caller disconnected before any work was done for it.
func abandoned(order *bourse.Order) bourse.Decision {
	return bourse.Decision{Order: order.ID, App: order.App.Name, Regions: order.Regions, Outcome: bourse.OutcomeCanceled}
}
