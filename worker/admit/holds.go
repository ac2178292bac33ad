package admit

import (
	"context"
	"errors"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// Holds are what a worker holds.
type Holds struct {
	state  *state.State
	host   *Host
	sooner chan struct{} // holds a token when one may end earlier than Run expects
}

// NewHolds makes the holds of a worker. It starts nothing.
func NewHolds(s *state.State, host *Host) *Holds {
	return &Holds{state: s, host: host, sooner: make(chan struct{}, 1)}
}

// Claim fills an order for capacity: it holds what a machine of the order's
// config would take, or returns the refusal. A repetition returns the first
// one's hold. One transaction is all there is to it, so a crash leaves the
// whole hold or none.
func (hs *Holds) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	var hold bourse.Hold
	var again bool
	err := hs.state.Store.Update(ctx, func(tx *store.Tx) (err error) {
		hold, again, err = hs.record(tx, c)
		return err
	})
	if err != nil { // the transaction may still be at work on hold
		refusal, err := hs.state.Refuse(err)
		return nil, refusal, err
	}
	hs.changed()
	return &bourse.Fill{Hold: &hold, Claimed: time.Since(begin), Again: again}, nil, nil
}

// record writes the order and what is held for it. What the reservation
// holds here already ends no earlier than the new hold, so that a reservation
// is there as a whole or not at all on one worker.
func (hs *Holds) record(tx *store.Tx, c *bourse.Claim) (hold bourse.Hold, again bool, err error) {
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
	takes := hs.host.Ledger.Running(&order.Config)
	refusal, err := hs.host.Machine(tx, order, takes, now)
	if err != nil {
		return hold, false, err
	}
	if refusal != nil {
		return hold, false, state.Refused{Refusal: *refusal}
	}
	if err := hs.state.KeepApp(tx, order.App); err != nil {
		return hold, false, err
	}
	hold = bourse.Hold{
		Order: order.ID, Reservation: order.Hold.Reservation, Index: order.Hold.Index, App: order.App.Name, AppID: order.App.ID,
		Worker: hs.state.Self.Worker, Tag: hs.state.Self.Tag, Region: hs.state.Self.Region, Takes: takes, Left: takes, CreatedAt: now,
	}
	if hold.ExpiresAt, err = prolong(tx, order.Hold.Reservation, now.Add(time.Duration(order.Hold.TTL))); err != nil {
		return hold, false, err
	}
	decision := c.Decision
	decision.Outcome, decision.Worker = bourse.OutcomeFilled, hs.state.Self.Worker
	if err := tx.PutOrder(store.OrderRecord{ID: order.ID, Held: true, Decision: decision, At: now}); err != nil {
		return hold, false, err
	}
	return hold, false, tx.PutHold(&hold)
}

// prolong makes what a reservation holds last until a time, or longer if it
// does already, and returns the end.
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

// Quote answers an order for capacity.
func (hs *Holds) Quote(ctx context.Context, order *bourse.Order) (bourse.Quote, error) {
	return hs.host.Quote(ctx, hs.state.Store, order, func(tx *store.Tx, q *bourse.Quote) (err error) {
		q.FilledHold, err = filledHold(tx, order)
		return err
	})
}

// filledHold returns what is held here for the order, if anything is now.
func filledHold(tx *store.Tx, order *bourse.Order) (*bourse.Hold, error) {
	h, ok, err := tx.Hold(order.ID)
	if err != nil || !ok || !h.OwnedBy(&order.App) || !h.ExpiresAt.After(time.Now()) {
		return nil, err
	}
	return &h, nil
}

// All returns what is held here now.
func (hs *Holds) All(ctx context.Context) ([]bourse.Hold, error) {
	if err := hs.state.Store.Sync(ctx); err != nil {
		return nil, err
	}
	live, now := []bourse.Hold{}, time.Now()
	err := hs.state.Store.View(func(tx *store.Tx) error {
		for h, err := range tx.Holds() {
			if err != nil {
				return err
			}
			if h.ExpiresAt.After(now) {
				live = append(live, h)
			}
		}
		return nil
	})
	return live, err
}

// Of returns what a reservation holds here now; CodeNotFound: nothing.
func (hs *Holds) Of(ctx context.Context, key bourse.ReservationKey) ([]bourse.Hold, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := hs.state.Store.Sync(ctx); err != nil {
		return nil, err
	}
	var live []bourse.Hold
	err := hs.state.Store.View(func(tx *store.Tx) (err error) {
		live, err = LiveHolds(tx, key, nil, time.Now())
		return err
	})
	if err == nil && len(live) == 0 {
		err = errNoHold(key)
	}
	return live, err
}

// Extend makes all that a reservation holds here end so long from now.
// CodeNotFound: it holds nothing any more.
func (hs *Holds) Extend(ctx context.Context, key bourse.ReservationKey, ttl time.Duration) ([]bourse.Hold, error) {
	if err := errors.Join(key.Validate(), bourse.ValidateHold(ttl)); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	var live []bourse.Hold
	err := hs.state.Store.Update(ctx, func(tx *store.Tx) (err error) {
		if live, err = LiveHolds(tx, key, nil, time.Now()); err != nil {
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
	hs.changed()
	return live, nil
}

// End ends what is held for an order that is canceled, or for all of a
// reservation.
func End(tx *store.Tx, id bourse.OrderID) error {
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
