package throttle_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// An order waits if all turns are taken. If the queue is full, an order is refused immediately.
func TestBeyondTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := throttle.NewOrderLimiter(throttle.OrderLimits{Concurrency: 2, Queue: 1})
		a, b := take(t, turns), take(t, turns)
		third := make(chan *throttle.Slot)
		go func() {
			turn, err := turns.Take(t.Context(), time.Hour)
			if err != nil {
				t.Errorf("an order within the queue: got %v, want no error", err)
			}
			third <- turn
		}()
		synctest.Wait()
		if _, err := turns.Take(t.Context(), time.Hour); bourse.CodeOf(err) != bourse.CodeRateLimited {
			t.Errorf("an order beyond the queue: got %v, want %s", err, bourse.CodeRateLimited)
		}
		a.Done()
		(<-third).Done()
		b.Done()
		take(t, turns).Done()
	})
}

// No order waits longer than QueueTimeout. Another order may take the place of an order that leaves the queue.
func TestQueueTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := throttle.NewOrderLimiter(throttle.OrderLimits{Concurrency: 1, Queue: 8, QueueTimeout: time.Second})
		turn := take(t, turns)
		began := time.Now()
		if _, err := turns.Take(t.Context(), time.Hour); bourse.CodeOf(err) != bourse.CodeRateLimited || time.Since(began) != time.Second {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
		ctx, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, leave)
		if _, err := turns.Take(ctx, time.Hour); bourse.CodeOf(err) != bourse.CodeCanceled {
			t.Errorf("order of a caller that disconnected: %v", err)
		}
		turn.Done()
		take(t, turns).Done()
	})
}

// When an order's lease ends, another order may begin, but no more than InProgress orders in
// total.
func TestLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := throttle.NewOrderLimiter(throttle.OrderLimits{Concurrency: 1, InProgress: 3, QueueTimeout: time.Minute})
		var long []*throttle.Slot
		for range 3 {
			turn, err := turns.Take(t.Context(), 100*time.Millisecond)
			if err != nil {
				t.Fatal(err)
			}
			long = append(long, turn)
		}
		time.Sleep(time.Second) // virtual time; all leases have ended
		if _, err := turns.Take(t.Context(), time.Hour); bourse.CodeOf(err) != bourse.CodeRateLimited {
			t.Errorf("an order beyond InProgress: got %v, want %s", err, bourse.CodeRateLimited)
		}
		for _, turn := range long {
			turn.Done()
		}
		take(t, turns).Done()
	})
}

func take(t *testing.T, turns *throttle.OrderLimiter) *throttle.Slot {
	t.Helper()
	turn, err := turns.Take(t.Context(), time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	return turn
}

// Orders arrive, wait, leave and end concurrently. At most Concurrency orders may have a turn at any time, and at most
// InProgress may be in progress. At the end all turns are free.
func TestTurnsAreNeverExceeded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		config := throttle.OrderLimits{
			Concurrency:  rapid.IntRange(1, 5).Draw(t, "at once"),
			Queue:        rapid.IntRange(1, 10).Draw(t, "queue"),
			InProgress:   rapid.IntRange(5, 20).Draw(t, "in progress"),
			QueueTimeout: time.Duration(rapid.IntRange(1, 2000).Draw(t, "patience µs")) * time.Microsecond,
		}
		orders := rapid.SliceOfN(rapid.IntRange(0, 300), 1, 60).Draw(t, "orders take µs")
		leaving := rapid.IntRange(1, 10).Draw(t, "order that disconnects")
		turns := throttle.NewOrderLimiter(config)
		var working, progress atomic.Int64
		var wg sync.WaitGroup
		for i, took := range orders {
			wg.Go(func() {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if i%leaving == 0 {
					time.AfterFunc(time.Duration(took)*time.Microsecond, cancel)
				}
				turn, err := turns.Take(ctx, time.Hour)
				if err != nil {
					return
				}
				if n := working.Add(1); n > int64(config.Concurrency) {
					t.Errorf("%d orders have a turn, want at most %d", n, config.Concurrency)
				}
				if n := progress.Add(1); n > int64(config.InProgress) {
					t.Errorf("%d orders are in progress, want at most %d", n, config.InProgress)
				}
				for began := time.Now(); time.Since(began) < time.Duration(took)*time.Microsecond; { //nolint:revive // works
				}
				progress.Add(-1)
				working.Add(-1)
				turn.Done()
			})
		}
		wg.Wait()
		for range config.Concurrency {
			if _, err := turns.Take(context.Background(), time.Hour); err != nil {
				t.Fatalf("a turn was not released: %v", err)
			}
		}
	})
}
