package market

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
)

// race claims the order on several workers concurrently. It marks the first fill as the winner, and
// returns when all claims have returned. After the first fill, it cancels the context of the other
// claims, so that they return sooner; their outcome is then unknown.
func (t *trade) race(ctx context.Context, batch []*bourse.Member, tries []attempt) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	claim := t.claimRequest()
	var won atomic.Bool
	var wg sync.WaitGroup
	for i, m := range batch {
		wg.Go(func() {
			a := t.attempt(ctx, m, claim)
			if a.won {
				a.won = won.CompareAndSwap(false, true)
				stop()
			}
			tries[i] = a
		})
	}
	wg.Wait()
	if !won.Load() {
		return
	}
	for i := range tries {
		if a := &tries[i]; a.unknown && a.refusal.Reason == bourse.RefusedLost {
			a.refusal = newRefusal(batch[i], bourse.RefusedCanceled, "another worker was faster, so the order was canceled there")
		}
	}
}
