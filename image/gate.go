package image

import "context"

// limiter is a semaphore: its capacity is the maximum number of goroutines that hold it at the same time. Unlike a
// mutex, it may be held during I/O, because goroutines that wait for it stop when their contexts end.
type limiter chan struct{}

// acquire waits for a free slot and returns a function that frees it.
func (g limiter) acquire(ctx context.Context) (func(), error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
