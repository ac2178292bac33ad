package admit

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// changed notifies Run that a hold may end earlier than it expects.
func (hs *Holds) changed() {
	select {
	case hs.sooner <- struct{}{}:
	default:
	}
}

const expireAgain = time.Second // after a failure

// Run ends holds when their time is over, until ctx ends: for long there may be
// no order that would. Decisions do not wait for it, see [store.Tx.CommittedAt].
func (hs *Holds) Run(ctx context.Context) error {
	var failures quiet.Line
	for {
		var due <-chan time.Time
		if end, ok := hs.nextExpiry(); ok {
			due = time.After(time.Until(end))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-hs.sooner:
			continue
		case <-due:
		}
		if n, err := hs.expire(ctx); err != nil && ctx.Err() == nil {
			if kept, ok := failures.Due(); ok {
				hs.state.Log.Warn("end holds whose time is over", "err", err, "not_logged", kept)
			}
			state.Rest(ctx, expireAgain)
		} else if n > 0 {
			hs.state.Log.Info("holds have expired", "count", n)
		}
	}
}

func (hs *Holds) nextExpiry() (end time.Time, ok bool) {
	_ = hs.state.Store.View(func(tx *store.Tx) error { // it fails when the daemon ends
		end, ok = tx.NextExpiry()
		return nil
	})
	return end, ok
}

func (hs *Holds) expire(ctx context.Context) (int, error) {
	n := 0
	err := hs.state.Store.Update(ctx, func(tx *store.Tx) (err error) {
		n, err = tx.ExpireHolds(time.Now())
		return err
	})
	if err != nil { // the transaction may still be at work on n
		return 0, err
	}
	return n, nil
}
