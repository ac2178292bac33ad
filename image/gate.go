package image

import "context"

// gate limits the number of goroutines that hold it to its capacity. Unlike a mutex, it may be
// held during I/O, because a waiting goroutine can give up.
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
