package market_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestConcurrentCallsAreOneOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(3, room(3))
		c.Break(func(Call) Fault { return Fault{Delay: time.Millisecond} })
		x := broker(c, nil)
		o := order("gru")
		first, leave := context.WithCancel(t.Context())
		answers := make([]told, 5)
		var wg sync.WaitGroup
		wg.Go(func() { answers[0] = place(first, x, o) })
		synctest.Wait()
		for i := range answers[1:] {
			wg.Go(func() { answers[1+i] = place(t.Context(), x, o) })
		}
		synctest.Wait()
		leave() // the other callers still wait for the order
		wg.Wait()
		if got := c.Calls(Claim); got != 1 {
			t.Errorf("%d claims, want 1", got)
		}
		for i, a := range answers {
			if a.err != nil || a.fill.Machine.ID != answers[0].fill.Machine.ID || a.fill.Repeated != (i > 0) {
				t.Errorf("caller %d: machine %q, again %v: %v", i, a.fill.Machine.ID, a.fill.Repeated, a.err)
			}
		}
	})
}

// TestCallAfterAllCallersLeft checks that, once all callers of an order have disconnected, the next
// caller starts the order again and is not affected by the cancellation of the earlier call.
func TestCallAfterAllCallersLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := floor(2, room(3))
		c.Break(func(Call) Fault { return Fault{Delay: 10 * time.Millisecond} })
		x := broker(c, nil)
		o := order("gru")
		ctx, leave := context.WithCancel(t.Context())
		var gone, stays told
		var wg sync.WaitGroup
		wg.Go(func() { gone = place(ctx, x, o) })
		time.Sleep(15 * time.Millisecond) // the claim of the first call is in progress
		leave()
		synctest.Wait()
		wg.Go(func() { stays = place(t.Context(), x, o) })
		wg.Wait()
		c.Quiet()
		fails(t, gone.err, bourse.CodeCanceled)
		living := c.Living(o.ID)
		if stays.err != nil || len(living) != 1 || living[0].ID != stays.fill.Machine.ID {
			t.Errorf("the broker returned %q, %v; %d machines exist", stays.fill.Machine.ID, stays.err, len(living))
		}
	})
}
