package worker

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// reserve fills an order for capacity: it holds what a machine of the order's
// config would take, or gives the refusal. A repetition is told of the first
// one's hold. One transaction is all there is to it, so a crash leaves the
// whole hold or none.
func (w *Worker) reserve(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	var hold bourse.Hold
	var again bool
	err := w.store.Update(ctx, func(tx *store.Tx) (err error) {
		hold, again, err = w.recordHold(tx, c)
		return err
	})
	if r, ok := errors.AsType[refused](err); ok {
		return nil, &r.Refusal, nil
	}
	if bourse.CodeOf(err) == bourse.CodeUnavailable { // the disk is full, or worse: nothing was recorded
		return nil, w.refusal(bourse.RefusedUnavailable, "the worker cannot write its store: "+err.Error()), nil
	}
	if err != nil { // the transaction may still be at work on hold
		return nil, nil, err
	}
	w.holdsChanged()
	return &bourse.Fill{Hold: &hold, Claimed: time.Since(begin), Again: again}, nil, nil
}

// recordHold writes the order and what is held for it. What the reservation
// holds here already ends no earlier than the new hold, so that a reservation
// is there as a whole or not at all on one worker.
func (w *Worker) recordHold(tx *store.Tx, c *bourse.Claim) (hold bourse.Hold, again bool, err error) {
	order, now := &c.Order, time.Now().UTC()
	if _, err := tx.ExpireHolds(now); err != nil {
		return hold, false, err
	}
	if held, err := filledHold(tx, order); err != nil || held != nil {
		if held != nil {
			hold = *held
		}
		return hold, true, err
	}
	takes := w.ledger.running(&order.Config)
	refusal, err := w.refuse(tx, order, takes)
	if err != nil {
		return hold, false, err
	}
	if refusal != nil {
		return hold, false, refused{*refusal}
	}
	if err := w.keepApp(tx, order.App); err != nil {
		return hold, false, err
	}
	hold = bourse.Hold{
		Order: order.ID, Reservation: order.Hold.Reservation, Index: order.Hold.Index, App: order.App.Name, AppID: order.App.ID,
		Worker: w.self.Worker, Tag: w.self.Tag, Region: w.self.Region, Takes: takes, Left: takes, CreatedAt: now,
	}
	if hold.ExpiresAt, err = prolong(tx, order.Hold.Reservation, now.Add(time.Duration(order.Hold.TTL))); err != nil {
		return hold, false, err
	}
	decision := c.Decision
	decision.Outcome, decision.Worker = bourse.OutcomeFilled, w.self.Worker
	if err := tx.PutOrder(store.OrderRecord{ID: order.ID, Held: true, Decision: decision, At: now}); err != nil {
		return hold, false, err
	}
	return hold, false, tx.PutHold(&hold)
}

// prolong makes what a reservation holds last until a time, or longer if it
// does already, and gives the end.
func prolong(tx *store.Tx, key bourse.ReservationKey, until time.Time) (time.Time, error) {
	holds, err := tx.HoldsOf(key.All())
	for _, h := range holds {
		if h.ExpiresAt.After(until) {
			until = h.ExpiresAt
		}
	}
	return until, errors.Join(err, last(tx, holds, until))
}

// last makes holds end at a time.
func last(tx *store.Tx, holds []bourse.Hold, until time.Time) error {
	for i := range holds {
		h := &holds[i]
		if h.ExpiresAt.Equal(until) {
			continue
		}
		h.ExpiresAt = until
		if err := tx.PutHold(h); err != nil {
			return err
		}
	}
	return nil
}

// filledHold gives what is held here for the order, if anything is now.
func filledHold(tx *store.Tx, order *bourse.Order) (*bourse.Hold, error) {
	h, ok, err := tx.Hold(order.ID)
	if err != nil || !ok || !h.OwnedBy(&order.App) || !h.ExpiresAt.After(time.Now()) {
		return nil, err
	}
	return &h, nil
}

// refuseID gives the reasons that lie in the order's id: it was canceled, or
// is another order's. What was held for an order and has ended is not held
// again: this order is a late repetition.
func refuseID(tx *store.Tx, order *bourse.Order) (*bourse.Refusal, error) {
	no := func(detail string) (*bourse.Refusal, error) {
		return &bourse.Refusal{Reason: bourse.RefusedCanceled, Detail: detail}, nil
	}
	rec, known, err := tx.Order(order.ID)
	switch {
	case err != nil:
		return nil, err
	case known && rec.Canceled:
		return no("the order was canceled")
	case known && foreign(&rec, &order.App):
		return no("the order's id is that of another order")
	case known && rec.Task != nil:
		return no("the order's id is that of a task")
	case known && rec.Held && order.Kind() == bourse.KindHold:
		return no("what was held for the order has ended")
	case known && rec.Held:
		return no("the order's id is one of a reservation's")
	case order.Kind() != bourse.KindHold:
		return nil, nil
	}
	rec, known, err = tx.Order(order.Hold.Reservation.All())
	if err != nil || !known || !rec.Canceled {
		return nil, err
	}
	return no("the reservation was released")
}

// holdsOf gives what a reservation holds here now; CodeNotFound: nothing.
func (w *Worker) holdsOf(ctx context.Context, key bourse.ReservationKey) ([]bourse.Hold, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := w.store.Sync(ctx); err != nil {
		return nil, err
	}
	var live []bourse.Hold
	err := w.store.View(func(tx *store.Tx) (err error) {
		live, err = liveHolds(tx, key, nil)
		return err
	})
	if err == nil && len(live) == 0 {
		err = errNoHold(key)
	}
	return live, err
}

// extend makes all that a reservation holds here end so long from now.
// CodeNotFound: it holds nothing any more.
func (w *Worker) extend(ctx context.Context, key bourse.ReservationKey, ttl time.Duration) ([]bourse.Hold, error) {
	if err := errors.Join(key.Validate(), bourse.ValidateHold(ttl)); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	var live []bourse.Hold
	err := w.store.Update(ctx, func(tx *store.Tx) (err error) {
		if live, err = liveHolds(tx, key, nil); err != nil {
			return err
		}
		if len(live) == 0 {
			return errNoHold(key)
		}
		return last(tx, live, time.Now().UTC().Add(ttl))
	})
	if err != nil { // the transaction may still be at work on live
		return nil, err
	}
	w.holdsChanged()
	return live, nil
}

// releaseHolds ends all that a reservation holds here, and refuses whatever it asks
// for later: a release that overtakes its reserve wins (invariant 7).
func (w *Worker) releaseHolds(ctx context.Context, key bourse.ReservationKey) error {
	if err := key.Validate(); err != nil {
		return err
	}
	_, err := w.cancel(ctx, key.All())
	return err
}

// endHolds ends what is held for an order that is canceled, or for all of a
// reservation.
func endHolds(tx *store.Tx, id bourse.OrderID) error {
	if err := tx.DeleteHold(id); err != nil {
		return err
	}
	holds, err := tx.HoldsOf(id)
	if err != nil {
		return err
	}
	for i := range holds {
		if err := tx.DeleteHold(holds[i].Order); err != nil {
			return err
		}
	}
	return nil
}

func errNoHold(key bourse.ReservationKey) error {
	return bourse.Errorf(bourse.CodeNotFound, "nothing is held for reservation %s here", key)
}
