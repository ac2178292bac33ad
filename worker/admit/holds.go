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

// Holds fills orders that hold capacity, and deletes expired holds. Its methods are safe for concurrent use.
type Holds struct {
	state *state.State
	host  *Host
	wake  chan struct{} // signals that a hold may expire before the time that Run is waiting for
}

// NewHolds returns a worker's holds. Expired holds are deleted while [Holds.Run] is running.
func NewHolds(s *state.State, host *Host) *Holds {
	return &Holds{state: s, host: host, wake: make(chan struct{}, 1)}
}

// Claim fills an order that holds capacity, or returns a refusal. The hold contains the resources that a machine with
// the order's config would take. A repeated claim returns the first claim's hold. The claim is a single transaction, so
// after a crash the hold exists either completely or not at all.
func (hs *Holds) Claim(ctx context.Context, c *bourse.Claim) (*bourse.Fill, *bourse.Refusal, error) {
	begin := time.Now()
	if err := hs.host.Precheck(hs.state.Store, &c.Order); err != nil {
		return hs.host.Answer(err)
	}
	var hold bourse.Hold
	err := hs.state.Store.Update(ctx, func(tx *store.Tx) (err error) {
		hold, err = hs.record(tx, c)
		return err
	})
	if err != nil { // after an error, the transaction may still be writing to hold, so do not read it
		return hs.host.Answer(err)
	}
	hs.changed()
	return &bourse.Fill{Hold: &hold, Claimed: time.Since(begin)}, nil, nil
}

// record writes an order and its hold. It extends the reservation's other holds on this worker, so that all of them
// expire together.
func (hs *Holds) record(tx *store.Tx, c *bourse.Claim) (hold bourse.Hold, err error) {
	order, now := &c.Order, time.Now().UTC()
	d, err := hs.host.Take(tx, order, now)
	if err != nil {
		return hold, err
	}
	if err := state.MergeApp(tx, order.App); err != nil {
		return hold, err
	}
	hold = bourse.Hold{
		Order: order.ID, Reservation: order.Hold.Reservation, Index: order.Hold.Index, App: order.App.Name, AppID: order.App.ID,
		Worker: hs.host.Worker, Tag: hs.host.Tag, Region: hs.host.Region, Takes: d.Takes, Remaining: d.Takes, CreatedAt: now,
	}
	if hold.ExpiresAt, err = extendExpiry(tx, order.Hold.Reservation, now, now.Add(time.Duration(order.Hold.TTL))); err != nil {
		return hold, err
	}
	decision := c.Decision
	decision.Outcome, decision.Worker = bourse.OutcomeFilled, hs.host.Worker
	if err := tx.PutOrder(store.OrderRecord{ID: order.ID, Held: true, Decision: decision, At: now}); err != nil {
		return hold, err
	}
	return hold, tx.PutHold(&hold)
}

// extendExpiry sets the expiry time of all of a reservation's holds on this worker to the latest of until and their
// current expiry times. It returns the new expiry time. Expired holds are not extended, because another order may have
// taken their capacity.
func extendExpiry(tx *store.Tx, key bourse.ReservationKey, now, until time.Time) (time.Time, error) {
	holds, err := liveHolds(tx, key, nil, now)
	for _, h := range holds {
		if h.ExpiresAt.After(until) {
			until = h.ExpiresAt
		}
	}
	return until, errors.Join(err, setExpiry(tx, holds, until))
}

// setExpiry sets the expiry time of each hold to end, and writes the holds whose expiry time was different.
func setExpiry(tx *store.Tx, holds []bourse.Hold, end time.Time) error {
	for i := range holds {
		h := &holds[i]
		if h.ExpiresAt.Equal(end) {
			continue
		}
		h.ExpiresAt = end
		if err := tx.PutHold(h); err != nil {
			return err
		}
	}
	return nil
}

// liveHolds returns a reservation's holds that have not expired. If app is not nil, it
// returns only that app's holds.
func liveHolds(tx *store.Tx, key bourse.ReservationKey, app *bourse.App, now time.Time) ([]bourse.Hold, error) {
	holds, err := tx.HoldsOf(key.All())
	return slices.DeleteFunc(holds, func(h bourse.Hold) bool {
		return !h.ExpiresAt.After(now) || app != nil && !h.OwnedBy(app)
	}), err
}

// useHolds fills in d.Committed, d.Held and d.UsedHolds. Capacity that the order's reservation holds counts as free.
// useHolds refuses an order whose reservation has no holds for its app on this worker.
func (d *Decision) useHolds(tx *store.Tx, order *bourse.Order, now time.Time) (_ *bourse.Refusal, err error) {
	d.Committed, err = tx.CommittedAt(now)
	if err != nil || order.Reservation == "" {
		return nil, err
	}
	holds, err := liveHolds(tx, order.Reservation.Key(), &order.App, now)
	if err != nil {
		return nil, err
	}
	if len(holds) == 0 {
		return &bourse.Refusal{Reason: bourse.RefusedReservation, Detail: fmt.Sprintf(
			"nothing is held for reservation %s and app %s: it expired, was released, or never existed", order.Reservation.Key(), order.App.Name)}, nil
	}
	drawn := subtractHeld(slices.Clone(holds), d.Takes)
	d.Held = slices.Equal(drawn, d.Takes)
	d.Committed = less(d.Committed, drawn)
	used := d.Takes
	if order.SkipLaunch { // the machine does not start yet, so it takes only its disk from the holds
		used = WhileStopped(used)
	}
	after := slices.Clone(holds)
	subtractHeld(after, used)
	for i := range after {
		if !slices.Equal(holds[i].Remaining, after[i].Remaining) {
			after[i].Remaining = slices.DeleteFunc(after[i].Remaining, func(a bourse.Amount) bool { return a.Amount == 0 })
			d.UsedHolds = append(d.UsedHolds, after[i])
		}
	}
	return nil, nil
}

// subtractHeld subtracts amounts from the holds' remaining capacity, one hold after the other, until everything is
// subtracted or the holds are empty. It returns the amounts that it subtracted.
func subtractHeld(holds []bourse.Hold, amounts bourse.Amounts) bourse.Amounts {
	need := slices.Clone(amounts)
	for h := range holds {
		holds[h].Remaining = slices.Clone(holds[h].Remaining) // the caller's holds may share this slice
		for j := range holds[h].Remaining {
			left := &holds[h].Remaining[j]
			if i := slices.IndexFunc(need, func(a bourse.Amount) bool { return a.Resource == left.Resource }); i >= 0 {
				n := min(need[i].Amount, left.Amount)
				left.Amount -= n
				need[i].Amount -= n
			}
		}
	}
	drawn := slices.Clone(amounts)
	for i := range drawn {
		drawn[i].Amount -= need[i].Amount
	}
	return drawn
}

// All returns the worker's holds that have not expired.
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

// Of returns a reservation's holds on this worker. It returns CodeNotFound if there are
// none.
func (hs *Holds) Of(ctx context.Context, key bourse.ReservationKey) ([]bourse.Hold, error) {
	if err := key.Validate(); err != nil {
		return nil, err
	}
	if err := hs.state.Store.Sync(ctx); err != nil {
		return nil, err
	}
	var live []bourse.Hold
	err := hs.state.Store.View(func(tx *store.Tx) (err error) {
		live, err = liveHolds(tx, key, nil, time.Now())
		return err
	})
	if err == nil && len(live) == 0 {
		err = errNoHold(key)
	}
	return live, err
}

// Extend makes a reservation's holds on this worker expire ttl from now, and returns them. It returns CodeNotFound if
// there are none.
func (hs *Holds) Extend(ctx context.Context, key bourse.ReservationKey, ttl time.Duration) ([]bourse.Hold, error) {
	if err := errors.Join(key.Validate(), bourse.ValidateHold(ttl)); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "%w", err)
	}
	var live []bourse.Hold
	err := hs.state.Store.Update(ctx, func(tx *store.Tx) (err error) {
		if live, err = liveHolds(tx, key, nil, time.Now()); err != nil {
			return err
		}
		if len(live) == 0 {
			return errNoHold(key)
		}
		return setExpiry(tx, live, time.Now().UTC().Add(ttl))
	})
	if err != nil { // after an error, the transaction may still be writing to live, so do not read it
		return nil, err
	}
	hs.changed()
	return live, nil
}

// End deletes the hold of a canceled order, or all holds of a released reservation.
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

// changed wakes Run. It is called when a hold may expire earlier than the time that Run is waiting for.
func (hs *Holds) changed() {
	select {
	case hs.wake <- struct{}{}:
	default:
	}
}

const expireRetry = time.Second // delay after a failure

// Run deletes expired holds until ctx is done. Decisions ignore expired holds even before they are deleted; see
// [store.Tx.CommittedAt].
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
		case <-hs.wake:
			continue
		case <-due:
		}
		if n, err := hs.expire(ctx); err != nil && ctx.Err() == nil {
			if kept, ok := failures.Due(); ok {
				hs.state.Log.Warn("delete expired holds failed", "err", err, "not_logged", kept)
			}
			state.Sleep(ctx, expireRetry)
		} else if n > 0 {
			hs.state.Log.Info("holds expired", "count", n)
		}
	}
}

func (hs *Holds) nextExpiry() (end time.Time, ok bool) {
	_ = hs.state.Store.View(func(tx *store.Tx) error { // the read fails only when the daemon stops
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
	if err != nil { // after an error, the transaction may still be writing to n, so do not read it
		return 0, err
	}
	return n, nil
}
