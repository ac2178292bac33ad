package admit

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
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

// LiveHolds returns what a reservation holds now for machines of an app, nil for
// any.
func LiveHolds(tx *store.Tx, key bourse.ReservationKey, app *bourse.App, now time.Time) ([]bourse.Hold, error) {
	holds, err := tx.HoldsOf(key.All())
	return slices.DeleteFunc(holds, func(h bourse.Hold) bool {
		return !h.ExpiresAt.After(now) || app != nil && !h.OwnedBy(app)
	}), err
}

// committed returns what is committed to others than the order: what its
// reservation holds for it counts as free. drawn is how much of that a machine
// takes that takes so much. An order whose reservation holds nothing here is
// refused.
func (h *Host) committed(tx *store.Tx, order *bourse.Order, takes bourse.Amounts, now time.Time) (committed, drawn bourse.Amounts, _ *bourse.Refusal, _ error) {
	committed, err := tx.CommittedAt(now)
	if err != nil || order.Reservation == "" {
		return committed, nil, nil, err
	}
	holds, err := LiveHolds(tx, order.Reservation.Key(), &order.App, now)
	if err != nil {
		return nil, nil, nil, err
	}
	if len(holds) == 0 {
		return nil, nil, &bourse.Refusal{Reason: bourse.RefusedReservation, Detail: fmt.Sprintf(
			"nothing is held for reservation %s and app %s: it has expired, was released, or never was", order.Reservation.Key(), order.App.Name)}, nil
	}
	drawn = draw(holds, takes)
	return Less(committed, drawn), drawn, nil, nil
}

// Drawn returns the holds of an order's reservation out of which a machine takes
// so much, with what is left in them.
func Drawn(tx *store.Tx, order *bourse.Order, takes bourse.Amounts, now time.Time) ([]bourse.Hold, error) {
	if order.Reservation == "" {
		return nil, nil
	}
	holds, err := LiveHolds(tx, order.Reservation.Key(), &order.App, now)
	if err != nil {
		return nil, err
	}
	before := slices.Clone(holds)
	draw(holds, takes)
	var changed []bourse.Hold
	for i := range holds {
		if slices.Equal(before[i].Left, holds[i].Left) {
			continue
		}
		holds[i].Left = slices.DeleteFunc(holds[i].Left, func(a bourse.Amount) bool { return a.Amount == 0 })
		changed = append(changed, holds[i])
	}
	return changed, nil
}

// draw takes as much of takes out of holds as is left in them, one after the
// other, and returns what that was.
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
