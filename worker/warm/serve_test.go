package warm_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/worker/warm"
)

// Serve does not run more handlers at once than the limit allows, and does not begin a
// waiting call that its caller has abandoned.
func TestConcurrency(t *testing.T) {
	const limit = 3
	var now, began atomic.Int64
	arrived, release, canceled := make(chan struct{}, 100), make(chan struct{}), make(chan struct{}, 1)
	c := open(t, serve(t, limit, func(ctx context.Context, _ *warm.Call) warm.Answer {
		if n := now.Add(1); n > limit {
			t.Errorf("%d handlers at once", n)
		}
		defer now.Add(-1)
		began.Add(1)
		arrived <- struct{}{}
		select {
		case <-release:
		case <-ctx.Done():
			canceled <- struct{}{}
		}
		return warm.Answer{}
	}))
	var group sync.WaitGroup
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	group.Go(func() {
		if _, err := c.Call(ctx, soon("x")); !errors.Is(err, context.Canceled) {
			t.Errorf("the canceled call: %v", err)
		}
	})
	for range limit - 1 {
		group.Go(func() {
			if _, err := c.Call(t.Context(), soon("x")); err != nil {
				t.Error(err)
			}
		})
	}
	for range limit {
		<-arrived
	}
	short := soon("given up")
	short.Deadline = time.Now().Add(10 * time.Millisecond)
	if _, err := c.Call(t.Context(), short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("call beyond the limit: %v", err)
	}
	leave()
	<-canceled // the waiting call was abandoned earlier than this one
	for range 2 * limit {
		group.Go(func() {
			if _, err := c.Call(t.Context(), soon("x")); err != nil {
				t.Error(err)
			}
		})
	}
	close(release)
	group.Wait()
	if n := began.Load(); n != 3*limit {
		t.Errorf("%d handlers began, want %d: an abandoned call must not begin", n, 3*limit)
	}
}
