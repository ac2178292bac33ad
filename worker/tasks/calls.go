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

// calls holds the tasks in progress, so that all claims of one order share one call
// (invariant 7). A call is removed once its end is durable.
type calls struct {
	mu     sync.Mutex
	of     map[bourse.OrderID]*call // guarded by mu
	ending []*call                  // guarded by mu; answered, but their ends are not durable yet
	wake   chan struct{}            // contains a token if ending has grown
}

// call is one task and the number of callers that wait for it. When the last caller
// leaves, the task is ended.
type call struct {
	order bourse.OrderID
	begun store.OrderRecord // of a warm task; set before it is recorded
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

// enter begins the call of an order and returns its context, or joins the call that is in
// progress and returns a nil context. The caller must call leave later.
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

// leave must be called once for each enter, when the caller's context has ended.
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

// Cancel ends the cold task of an order that is canceled, in the transaction that cancels
// it. The end of a warm task is recorded by its call. A task that has ended stays as it
// is.
func Cancel(tx *store.Tx, rec *store.OrderRecord) error {
	if rec.Task.Cold == nil {
		return nil
	}
	_, err := tx.TaskEnded(rec.ID, coldCut(rec.Task, bourse.TaskCanceled, "it was canceled: "+errWithdrawn.Error()), time.Now().UTC())
	return err
}

// forget removes a call that has no record, or whose end is durable.
func (s *calls) forget(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, c.order)
}

// settle passes a call to Run, which waits until the end that was submitted is durable.
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

// settlePatience is the time between attempts to record an end that the store refuses,
// for example because the disk is full.
const settlePatience = time.Second

// Run makes the ends of tasks durable, until ctx ends. If the disk is full, it repeats the
// write until that succeeds. Until then, the task keeps its resources, and a repetition of
// its order gets the answer from memory.
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
					return nil //nolint:nilerr // the end of ctx is not an error
				}
				if err == nil {
					break
				}
				if kept, ok := failures.Due(); ok {
					t.state.Log.Warn("record end of task failed", "order", c.order, "err", err, "not_logged", kept)
				}
				state.Rest(ctx, settlePatience)
				c.saved = t.state.Store.Submit(c.write)
			}
			t.calls.forget(c)
		}
	}
}
