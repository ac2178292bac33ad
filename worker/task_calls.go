package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
)

// taskCalls are the tasks under way here, so that claims of one order are one
// call (invariant 7). A call stays until its end is durable.
type taskCalls struct {
	mu     sync.Mutex
	of     map[bourse.OrderID]*taskCall // guarded by mu
	ending []*taskCall                  // guarded by mu; answered, and their ends not yet durable
	wake   chan struct{}                // holds one: ending has grown
}

// taskCall is one task and those who wait for it. The last of them to leave
// ends it.
type taskCall struct {
	order bourse.OrderID
	begun store.OrderRecord // of a warm one; set before it is recorded
	cut   context.CancelCauseFunc
	write func(*store.Tx) error // records its end
	saved *store.Commit         // of write

	done    chan struct{} // closed once the fields below are set
	fill    *bourse.Fill
	refusal *bourse.Refusal
	err     error

	callers int // guarded by taskCalls.mu
}

var (
	errCallerLeft = errors.New("the caller left")
	errWithdrawn  = errors.New("the order was canceled")
)

// enter begins the call of an order and gives the context to work in, or joins
// the one that is under way and gives none. leave must follow.
func (s *taskCalls) enter(ctx context.Context, id bourse.OrderID) (*taskCall, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[id]; c != nil {
		c.callers++
		return c, nil
	}
	c := &taskCall{order: id, done: make(chan struct{}), callers: 1}
	// The call outlives its first caller while others wait for it.
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	c.cut = cut
	if s.of == nil {
		s.of = map[bourse.OrderID]*taskCall{}
	}
	s.of[id] = c
	return c, work
}

// leave is called once by each who entered, when their context has ended.
func (s *taskCalls) leave(c *taskCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.cut(errCallerLeft)
	}
}

// withdraw ends the call of an order, if one is under way.
func (s *taskCalls) withdraw(id bourse.OrderID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[id]; c != nil {
		c.cut(errWithdrawn)
	}
}

// forget drops a call that has left no record, or whose record is durable.
func (s *taskCalls) forget(c *taskCall) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, c.order)
}

// settle hands a call over whose end has been submitted.
func (s *taskCalls) settle(c *taskCall) {
	s.mu.Lock()
	s.ending = append(s.ending, c)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *taskCalls) take() []*taskCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.ending
	s.ending = nil
	return list
}

// settleTasks sees to it that the ends of tasks become durable, until ctx ends.
// What a full disk has not taken is written again until it does: until then the
// task keeps its place in the ledger, and its order its answer.
func (w *Worker) settleTasks(ctx context.Context) error {
	var failures quiet.Line
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.calls.wake:
		}
		for _, c := range w.calls.take() {
			for {
				err := c.saved.Wait(ctx)
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the end is no error
				}
				if err == nil {
					break
				}
				if kept, ok := failures.Due(); ok {
					w.log.Warn("record the end of a task", "order", c.order, "err", err, "not_logged", kept)
				}
				w.rest(ctx, watchPatience)
				c.saved = w.store.Submit(c.write)
			}
			w.calls.forget(c)
		}
	}
}
