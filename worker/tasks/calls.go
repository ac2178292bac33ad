package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// calls are the tasks in progress here, so that claims of one order are one call
// (invariant 7). A call stays until its end is durable.
type calls struct {
	mu     sync.Mutex
	of     map[bourse.OrderID]*call // guarded by mu
	ending []*call                  // guarded by mu; answered, and their ends not yet durable
	wake   chan struct{}            // holds one: ending has grown
}

// call is one task and those who wait for it. The last of them to leave
// ends it.
type call struct {
	order bourse.OrderID
	begun store.OrderRecord // of a warm one; set before it is recorded
	cut   context.CancelCauseFunc
	write func(*store.Tx) error // records its end
	saved *store.Commit         // of write

	done    chan struct{} // closed once the fields below are set
	fill    *bourse.Fill
	refusal *bourse.Refusal
	err     error

	callers int // guarded by calls.mu
}

var (
	errCallerLeft = errors.New("the caller left")
	errWithdrawn  = errors.New("the order was canceled")
)

// enter begins the call of an order and returns the context to work in, or joins
// the one that is in progress and returns none. leave must follow.
func (s *calls) enter(ctx context.Context, id bourse.OrderID) (*call, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[id]; c != nil {
		c.callers++
		return c, nil
	}
	c := &call{order: id, done: make(chan struct{}), callers: 1}
	// The call outlives its first caller while others wait for it.
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	c.cut = cut
	if s.of == nil {
		s.of = map[bourse.OrderID]*call{}
	}
	s.of[id] = c
	return c, work
}

// leave is called once by each who entered, when their context has ended.
func (s *calls) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.cut(errCallerLeft)
	}
}

// withdraw ends the call of an order, if one is in progress.
func (s *calls) withdraw(id bourse.OrderID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[id]; c != nil {
		c.cut(errWithdrawn)
	}
}

// Withdraw ends the call of an order that is canceled, if one is in progress.
func (t *Tasks) Withdraw(id bourse.OrderID) { t.calls.withdraw(id) }

// Cancel ends the task of an order that is canceled, in the transaction that
// cancels it. The call of a warm one records its end; one that has ended stays
// as it is.
func Cancel(tx *store.Tx, rec *store.OrderRecord) error {
	if rec.Task.Cold == nil {
		return nil
	}
	_, err := tx.TaskEnded(rec.ID, coldCut(rec.Task, bourse.TaskCanceled, "it was canceled: "+errWithdrawn.Error()), time.Now().UTC())
	return err
}

// forget removes a call that has left no record, or whose record is durable.
func (s *calls) forget(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, c.order)
}

// settle hands over a call whose end has been submitted.
func (s *calls) settle(c *call) {
	s.mu.Lock()
	s.ending = append(s.ending, c)
	s.mu.Unlock()
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *calls) take() []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.ending
	s.ending = nil
	return list
}

// settlePatience passes between attempts to record an end that the store
// refuses, on a full disk say.
const settlePatience = time.Second

// Run has the ends of tasks become durable, until ctx ends.
// What a full disk has not taken is written again until it does: until then the
// task keeps its place in the ledger, and its order its answer.
func (t *Tasks) Run(ctx context.Context) error {
	var failures quiet.Line
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-t.calls.wake:
		}
		for _, c := range t.calls.take() {
			for {
				err := c.saved.Wait(ctx)
				if ctx.Err() != nil {
					return nil //nolint:nilerr // the end is no error
				}
				if err == nil {
					break
				}
				if kept, ok := failures.Due(); ok {
					t.state.Log.Warn("record the end of a task", "order", c.order, "err", err, "not_logged", kept)
				}
				state.Rest(ctx, settlePatience)
				c.saved = t.state.Store.Submit(c.write)
			}
			t.calls.forget(c)
		}
	}
}
