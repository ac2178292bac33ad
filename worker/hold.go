package worker

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
	"github.com/bourse-dev/bourse/store"
)

// liveHolds gives what a reservation holds now for machines of an app, nil for
// any.
func liveHolds(tx *store.Tx, key bourse.ReservationKey, app *bourse.App) ([]bourse.Hold, error) {
	holds, err := tx.HoldsOf(key.All())
	now := time.Now()
	return slices.DeleteFunc(holds, func(h bourse.Hold) bool {
		return !h.ExpiresAt.After(now) || app != nil && !h.OwnedBy(app)
	}), err
}

// committedTo gives what is committed to others than the order: what its
// reservation holds for it counts as free. drawn is how much of that a machine
// takes that takes so much. An order whose reservation holds nothing here is
// refused.
func (w *Worker) committedTo(tx *store.Tx, order *bourse.Order, takes bourse.Amounts) (committed, drawn bourse.Amounts, _ *bourse.Refusal, _ error) {
	committed, err := tx.CommittedAt(time.Now())
	if err != nil || order.Reservation == "" {
		return committed, nil, nil, err
	}
	holds, err := liveHolds(tx, order.Reservation.Key(), &order.App)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(holds) == 0 {
		return nil, nil, &bourse.Refusal{Reason: bourse.RefusedReservation, Detail: fmt.Sprintf(
			"nothing is held for reservation %s and app %s: it has expired, was released, or never was", order.Reservation.Key(), order.App.Name)}, nil
	}
	drawn = draw(holds, takes)
	return less(committed, drawn), drawn, nil, nil
}

// draw takes as much of takes out of holds as is left in them, one after the
// other, and gives what that was.
func draw(holds []bourse.Hold, takes bourse.Amounts) bourse.Amounts {
	need := slices.Clone(takes)
	for h := range holds {
		holds[h].Left = slices.Clone(holds[h].Left) // others may have the list
		for j := range holds[h].Left {
			left := &holds[h].Left[j]
			if i := slices.IndexFunc(need, func(a bourse.Amount) bool { return a.Resource == left.Resource }); i >= 0 {
				n := min(need[i].Amount, left.Amount)
				left.Amount -= n
				need[i].Amount -= n
			}
		}
	}
	drawn := slices.Clone(takes)
	for i := range drawn {
		drawn[i].Amount -= need[i].Amount
	}
	return drawn
}

// drawHolds records that a machine takes so much out of what its order's
// reservation holds, in the transaction that records the machine. A hold that
// is used up holds nothing, and its record stays until its end: the
// reservation is still known here.
func drawHolds(tx *store.Tx, order *bourse.Order, takes bourse.Amounts) error {
	if order.Reservation == "" {
		return nil
	}
	holds, err := liveHolds(tx, order.Reservation.Key(), &order.App)
	if err != nil {
		return err
	}
	before := slices.Clone(holds)
	draw(holds, takes)
	for i := range holds {
		if slices.Equal(before[i].Left, holds[i].Left) {
			continue
		}
		holds[i].Left = slices.DeleteFunc(holds[i].Left, func(a bourse.Amount) bool { return a.Amount == 0 })
		if err := tx.PutHold(&holds[i]); err != nil {
			return err
		}
	}
	return nil
}

// holdsChanged tells keepHolds that one may end earlier than it thinks.
func (w *Worker) holdsChanged() {
	select {
	case w.held <- struct{}{}:
	default:
	}
}

const expireAgain = time.Second // after a failure

// keepHolds ends holds when their time is over, until ctx ends: nobody may ask
// for long. Decisions do not wait for it, see [store.Tx.CommittedAt].
func (w *Worker) keepHolds(ctx context.Context) error {
	var failures quiet.Line
	for {
		var due <-chan time.Time
		if end, ok := w.nextExpiry(); ok {
			due = time.After(time.Until(end))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-w.held:
			continue
		case <-due:
		}
		if n, err := w.expireHolds(ctx); err != nil && ctx.Err() == nil {
			if kept, ok := failures.Due(); ok {
				w.log.Warn("end holds whose time is over", "err", err, "not_logged", kept)
			}
			w.rest(ctx, expireAgain)
		} else if n > 0 {
			w.log.Info("holds have expired", "count", n)
		}
	}
}

func (w *Worker) nextExpiry() (end time.Time, ok bool) {
	_ = w.store.View(func(tx *store.Tx) error { // it fails when the daemon ends
		end, ok = tx.NextExpiry()
		return nil
	})
	return end, ok
}

func (w *Worker) expireHolds(ctx context.Context) (int, error) {
	n := 0
	err := w.store.Update(ctx, func(tx *store.Tx) (err error) {
		n, err = tx.ExpireHolds(time.Now())
		return err
	})
	if err != nil { // the transaction may still be at work on n
		return 0, err
	}
	return n, nil
}
