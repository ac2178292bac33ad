package image

import "context"

// gate lets so many goroutines pass at a time as its capacity says. Unlike a
// mutex it may be held over I/O: who waits for it can leave.
type gate chan struct{}

// pass waits until there is room, and gives what makes room again.
func (g gate) pass(ctx context.Context) (func(), error) {
	select {
	case g <- struct{}{}:
		return func() { <-g }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
