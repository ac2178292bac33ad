package warm

import (
	"context"
	"sync"
	"time"
)

// callContext is the context of a handler: its values are those of Serve's. It
// has nothing to end and costs nothing until its Done is asked for.
type callContext struct {
	context.Context //nolint:containedctx // it is one
	deadline        time.Time

	mu   sync.Mutex
	done chan struct{} // nil until it is asked for
	err  error
}

// Deadline returns when the worker will abandon the call.
func (c *callContext) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is closed when the worker has given the call up, or it was answered.
func (c *callContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}
	return c.done
}

// Err is context.Canceled once Done is closed.
func (c *callContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *callContext) cancel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = context.Canceled
		if c.done != nil {
			close(c.done)
		}
	}
}
