package image

import "context"

// limiter is a semaphore. Its capacity is the maximum number of goroutines that hold it at the same time. Unlike a
// mutex, it may be held during I/O, because a goroutine stops waiting for it when its context is done.
type limiter chan struct{}

// acquire waits for a free slot, takes it, and returns a function that frees it. It returns an error if ctx is done
// first.
func (g limiter) acquire(ctx context.Context) (func(), error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
