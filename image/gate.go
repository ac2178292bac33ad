package image

import "context"

// gate is a semaphore: its capacity is the maximum number of goroutines that hold it at once.
// Unlike a mutex, it may be held during I/O, because goroutines that wait for it stop when their
// contexts end.
type gate chan struct{}

// pass waits for a free slot and returns a function that frees it.
func (g gate) pass(ctx context.Context) (func(), error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
