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

// calls contains the tasks in progress, so that all claims for the same order share one call (invariant 7). A call is
// removed once its outcome is durable.
type calls struct {
	mu     sync.Mutex
	of     map[bourse.OrderID]*call // guarded by mu; calls by order
	ending []*call                  // finished calls whose outcomes are not durable yet; guarded by mu
	wake   chan struct{}            // signals that ending has grown
}

// call is a task in progress. It counts the callers that are waiting for it. When the last caller leaves, the task is
// canceled.
type call struct {
	order  bourse.OrderID
	begun  store.OrderRecord // a warm task's record when the task begins; set before the record is written
	cancel context.CancelCauseFunc
	write  func(*store.Tx) error // writes the task's outcome to the store
	saved  *store.Commit         // the commit that contains write's changes

	done    chan struct{} // closed once the fields below are set
	fill    *bourse.Fill
	refusal *bourse.Refusal
	err     error

	callers int // guarded by calls.mu
}

var (
	errCallerLeft    = errors.New("the caller disconnected")
	errOrderCanceled = errors.New("the order was canceled")
)

// enter begins a call for an order, and returns the call and its context. If a call for the order is already in
// progress, enter joins that call and returns a nil context. If ctx is done before the call is finished, the caller
// must call leave.
func (s *calls) enter(ctx context.Context, id bourse.OrderID) (*call, context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[id]; c != nil {
		c.callers++
		return c, nil
	}
	c := &call{order: id, done: make(chan struct{}), callers: 1}
	// If the first caller leaves, the call continues as long as other callers are waiting for it.
	work, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	c.cancel = cut
	if s.of == nil {
		s.of = map[bourse.OrderID]*call{}
	}
	s.of[id] = c
	return c, work
}

// leave removes a caller from a call after the caller's context is done. If no callers remain, the call is canceled.
// leave must be called at most once for each enter.
func (s *calls) leave(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.callers--; c.callers == 0 {
		c.cancel(errCallerLeft)
	}
}

// withdraw cancels an order's call, if one is in progress.
func (s *calls) withdraw(id bourse.OrderID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.of[id]; c != nil {
		c.cancel(errOrderCanceled)
	}
}

// Withdraw cancels the call of a canceled order, if one is in progress.
func (t *Tasks) Withdraw(id bourse.OrderID) { t.calls.withdraw(id) }

// Cancel records a cold task as canceled. It is called in the transaction that cancels the task's order. The outcome of
// a warm task is recorded by the task's call instead. Cancel does not change the record of a finished task.
func Cancel(tx *store.Tx, rec *store.OrderRecord) error {
	if rec.Task.Cold == nil {
		return nil
	}
	_, err := tx.RecordTaskEnd(rec.ID, endedEarly(rec.Task, bourse.TaskCanceled, "it was canceled: "+errOrderCanceled.Error()), time.Now().UTC())
	return err
}

// forget removes a call that was never recorded, or whose outcome is already durable.
func (s *calls) forget(c *call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.of, c.order)
}

// settle passes a finished call to Run, which ensures that the outcome becomes durable.
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

// saveInterval is the delay between attempts to record a task's outcome if the store does not accept it, for example
// because the disk is full.
const saveInterval = time.Second

// Run ensures that tasks' outcomes become durable, until ctx is done. If the disk is full, Run retries until the write
// succeeds. In the meantime, the task keeps its resources, and repeated orders receive the answer from memory.
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
				state.Sleep(ctx, saveInterval)
				c.saved = t.state.Store.Submit(c.write)
			}
			t.calls.forget(c)
		}
	}
}
