package market

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
)

// race claims at several workers concurrently and marks the first fill as the winner. It returns when all claims have
// returned. The winner speeds that up by canceling the context of the others, whose outcome is then unknown.
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
