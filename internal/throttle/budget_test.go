package throttle

import (
	"sync"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"
)

// TestBudgetNeverOverdrawn checks that concurrent bodies never hold more than the budget, and that
// large bodies leave part of it to small ones. At the end, the whole budget must be free again.
func TestBudgetNeverOverdrawn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(256<<10, 4<<20).Draw(t, "total")
		sizes := rapid.SliceOfN(rapid.Int64Range(1, 2<<20), 1, 8).Draw(t, "sizes")
		step := rapid.Int64Range(1<<10, 64<<10).Draw(t, "step")
		l := NewBodies(total)
		var all, large atomic.Int64 // lower bounds of the held bytes
		var wg sync.WaitGroup
		for _, size := range sizes {
			wg.Go(func() {
				b := &body{limits: l, hold: l.budget.Open("acme", nil)}
				held, big := int64(0), int64(0)
				for held < size {
					n := min(step, size-held)
					if !b.take(n) {
						break
					}
					held += n
					if now := all.Add(n); now > total {
						t.Errorf("all bodies hold %d bytes, want at most %d", now, total)
					}
					if held > smallBody {
						big += n
						if now := large.Add(n); now > total-total/reserveDivisor {
							t.Errorf("large bodies hold %d bytes, want at most %d", now, total-total/reserveDivisor)
						}
					}
				}
				all.Add(-held)
				large.Add(-big)
				b.hold.Release()
			})
		}
		wg.Wait()
		if all := l.budget.Open("acme", nil); !all.Take(total, 0) {
			t.Error("some bytes were not released")
		}
	})
}
