package store

import (
	"iter"
	"time"

	"github.com/bourse-dev/bourse"
)

var holds = table[bourse.Hold]{bucketHolds, holdKeys, func(h *bourse.Hold) []sumPart { return committed(h.Remaining) }}

func holdKeys(h *bourse.Hold) []entry {
	of := append(append([]byte(h.Reservation.All()), 0), h.Order...)
	return []entry{
		{bucketHoldOf, of, []byte{}, ""},
		{bucketHoldEnd, timeKey(h.ExpiresAt, string(h.Order)), []byte{}, ""},
	}
}

// Hold returns an order's hold, and whether it exists.
func (t *Tx) Hold(order bourse.OrderID) (bourse.Hold, bool, error) {
	return holds.get(t, []byte(order))
}

// PutHold inserts or replaces a hold and updates the indexes and the committed sums. It returns
// CodeInternal if a value is out of range, or if Remaining exceeds Takes.
func (t *Tx) PutHold(h *bourse.Hold) error {
	if err := validHold(h); err != nil {
		return err
	}
	return holds.put(t, []byte(h.Order), h)
}

func validHold(h *bourse.Hold) error {
	for _, err := range []error{h.Order.Validate(), h.Reservation.Validate(), h.App.Validate(), h.Takes.Validate(), h.Remaining.Validate()} {
		if err != nil {
			return bourse.Errorf(bourse.CodeInternal, "record of hold %s: %w", bourse.Quoted(string(h.Order)), err)
		}
	}
	for _, left := range h.Remaining {
		if left.Amount > h.Takes.Of(left.Resource) {
			return bourse.Errorf(bourse.CodeInternal, "record of hold %s: the remaining %s is %d, more than the %d that the hold takes", h.Order, left.Resource, left.Amount, h.Takes.Of(left.Resource))
		}
	}
	return nil
}

// DeleteHold removes an order's hold. It does nothing if there is none.
func (t *Tx) DeleteHold(order bourse.OrderID) error { return holds.delete(t, []byte(order)) }

// Holds returns all holds sorted by order id.
func (t *Tx) Holds() iter.Seq2[bourse.Hold, error] { return holds.all(t) }

// HoldsOf returns a reservation's holds on this worker, sorted by order id. It identifies the reservation by its
// [bourse.ReservationKey.All].
func (t *Tx) HoldsOf(reservation bourse.OrderID) ([]bourse.Hold, error) {
	var out []bourse.Hold
	for order := range t.keysBelow(bucketHoldOf, append([]byte(reservation), 0)) {
		h, _, err := t.Hold(bourse.OrderID(order))
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// NextExpiry returns the earliest time when a hold expires. It returns false if there are no holds.
func (t *Tx) NextExpiry() (time.Time, bool) {
	for k := range t.kv.Range(bucketHoldEnd, nil) {
		at, _ := splitTimeKey(k)
		return at, true
	}
	return time.Time{}, false
}

// expired returns the holds that expire at or before the given time.
func (t *Tx) expired(by time.Time) ([]bourse.Hold, error) {
	var out []bourse.Hold
	for k := range t.kv.Range(bucketHoldEnd, nil) {
		at, order := splitTimeKey(k)
		if at.After(by) {
			break
		}
		h, _, err := t.Hold(bourse.OrderID(order))
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// ExpireHolds removes the expired holds, and returns how many it has removed.
func (t *Tx) ExpireHolds(now time.Time) (int, error) {
	over, err := t.expired(now)
	if err != nil {
		return 0, err
	}
	for i := range over {
		if err := t.DeleteHold(over[i].Order); err != nil {
			return 0, err
		}
	}
	return len(over), nil
}

// CommittedAt returns the committed amounts, excluding expired holds. Use it to decide whether an order fits. A
// read-write transaction deletes the expired holds; a read-only transaction only subtracts their amounts.
func (t *Tx) CommittedAt(now time.Time) (bourse.Amounts, error) {
	if t.writes {
		if _, err := t.ExpireHolds(now); err != nil {
			return nil, err
		}
		return t.Committed()
	}
	sum, err := t.Committed()
	if err != nil {
		return nil, err
	}
	over, err := t.expired(now)
	for i := range over {
		for j := range sum {
			sum[j].Amount -= over[i].Remaining.Of(sum[j].Resource)
		}
	}
	return sum, err
}
