package image

import "context"

// gate lets as many goroutines pass at a time as its capacity. Unlike a
// mutex it may be held over I/O: a waiter can give up.
type gate chan struct{}

// pass waits until there is a free slot, and returns a function that frees it again.
func (g gate) pass(ctx context.Context) (func(), error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
