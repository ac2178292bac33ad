package market

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/bourse-dev/bourse"
)

// race claims at several workers side by side and marks the first fill as the
// one that won. It returns when all claims have, which the winner hurries by
// ending their context; what became of those is then unknown.
func (t *trade) race(ctx context.Context, batch []*bourse.Member, tries []attempt) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	claim := t.sofar()
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
			a.refusal = no(batch[i], bourse.RefusedCanceled, "another worker started first; canceled there")
		}
	}
}
