package store

import (
	"iter"
	"time"

	"github.com/bourse-dev/bourse"
)

// Hold gives what is held for an order, if anything is.
func (t *Tx) Hold(order bourse.OrderID) (bourse.Hold, bool, error) {
	var h bourse.Hold
	ok, err := t.record(bucketHolds, []byte(order), &h)
	return h, ok, err
}

// PutHold inserts a hold or replaces it, and with it the indexes and the
// committed sums. CodeInternal: it is out of its ranges, or leaves more than it
// takes.
func (t *Tx) PutHold(h *bourse.Hold) error {
	if err := validHold(h); err != nil {
		return err
	}
	old, _, err := t.Hold(h.Order)
	if err != nil {
		return err
	}
	if err := t.replaceHold(&old, h); err != nil {
		return err
	}
	return t.putRecord(bucketHolds, []byte(h.Order), h)
}

func validHold(h *bourse.Hold) error {
	for _, err := range []error{h.Order.Validate(), h.Reservation.Validate(), h.App.Validate(), h.Takes.Validate(), h.Left.Validate()} {
		if err != nil {
			return bourse.Errorf(bourse.CodeInternal, "record of hold %s: %w", bourse.Quoted(string(h.Order)), err)
		}
	}
	for _, left := range h.Left {
		if left.Amount > h.Takes.Of(left.Resource) {
			return bourse.Errorf(bourse.CodeInternal, "record of hold %s: %d of %d %s are left", h.Order, left.Amount, h.Takes.Of(left.Resource), left.Resource)
		}
	}
	return nil
}

// DeleteHold ends what is held for an order; without a hold it does nothing.
func (t *Tx) DeleteHold(order bourse.OrderID) error {
	old, ok, err := t.Hold(order)
	if err != nil || !ok {
		return err
	}
	if err := t.replaceHold(&old, nil); err != nil {
		return err
	}
	return t.delete(bucketHolds, []byte(order))
}

// Holds gives every hold in order of its order's id.
func (t *Tx) Holds() iter.Seq2[bourse.Hold, error] { return all[bourse.Hold](t, bucketHolds) }

// HoldsOf gives the holds of one reservation, named by [bourse.ReservationKey.All],
// in order of their orders' ids. They are read before it returns.
func (t *Tx) HoldsOf(reservation bourse.OrderID) ([]bourse.Hold, error) {
	var out []bourse.Hold
	for order := range t.under(bucketHoldOf, append([]byte(reservation), 0)) {
		h, _, err := t.Hold(bourse.OrderID(order))
		if err != nil {
			return nil, err
		}
		out = append(out, h)
	}
	return out, nil
}

// NextExpiry tells when the next hold ends, false when there is none.
func (t *Tx) NextExpiry() (time.Time, bool) {
	for k := range t.from(bucketHoldEnd, nil) {
		at, _ := splitTimeKey(k)
		return at, true
	}
	return time.Time{}, false
}

// expired gives the holds that have ended by a time.
func (t *Tx) expired(by time.Time) ([]bourse.Hold, error) {
	var out []bourse.Hold
	for k := range t.from(bucketHoldEnd, nil) {
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

// ExpireHolds ends the holds whose time is over, and tells how many.
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

// CommittedAt is Committed for who decides: no hold counts in it whose time is
// over. One that may write ends those; one that only reads leaves them out.
func (t *Tx) CommittedAt(now time.Time) (bourse.Amounts, error) {
	if t.writes != nil {
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
			sum[j].Amount -= over[i].Left.Of(sum[j].Resource)
		}
	}
	return sum, err
}

// holdIndex gives every index entry that a hold has.
func holdIndex(h *bourse.Hold) []indexEntry {
	if h == nil || h.Order == "" {
		return nil
	}
	of := append(append([]byte(h.Reservation.All()), 0), h.Order...)
	return []indexEntry{
		{bucketHoldOf, of, []byte{}, ""},
		{bucketHoldEnd, timeKey(h.ExpiresAt, string(h.Order)), []byte{}, ""},
	}
}

// replaceHold replaces what the old record contributes to indexes and sums by
// what the new one does. The old may be zero, the new one nil.
func (t *Tx) replaceHold(old, now *bourse.Hold) error {
	var after bourse.Amounts
	if now != nil {
		after = now.Left
	}
	if err := t.replaceEntries(holdIndex(old), holdIndex(now)); err != nil {
		return err
	}
	return t.resum(old.Left, after)
}
