package bourse

import (
	"cmp"
	"time"

	"github.com/oklog/ulid/v2"
)

// Absence is a worker that belongs to the cluster and cannot be reached: it
// may be dead, cut off, or about to come back with all that it had.
type Absence struct {
	// Member is what was known of it; Leaving says that it left in good order.
	Member
	// Since is when it was found to be absent. What was begun later is not
	// there.
	Since time.Time
	// LostAfter is how long it may be absent; 0: LostAfter.
	LostAfter time.Duration
	// Forgotten: an operator has said that it will not come back.
	Forgotten bool
}

// LostAfter is how long a worker may be absent before it counts as lost for
// good, where the operator says nothing else. It outlives any repetition of a
// request, and is well within the time that a cancellation waits for a worker
// to come back.
const LostAfter = 24 * time.Hour

// MaxLostAfter is the limit of what an operator may say: a cancellation waits
// for a day longer.
const MaxLostAfter = 6 * 24 * time.Hour

// MaxSkew is how far clients' clocks may be from ours for the time in an
// order's id to mean something.
const MaxSkew = 5 * time.Second

// Lost reports whether the worker is taken for lost for good.
func (a *Absence) Lost(now time.Time) bool {
	return a.Forgotten || now.Sub(a.Since) > cmp.Or(a.LostAfter, LostAfter)
}

// MayHaveFilled reports whether the worker may have filled an order before it
// became absent. It cannot have if the order is younger than its absence,
// which the order's id tells.
func (a *Absence) MayHaveFilled(id OrderID, now time.Time) bool {
	born := id.Time()
	return !born.After(a.Since.Add(MaxSkew)) || born.After(now.Add(MaxSkew))
}

// Time returns the time at which the id says that it was made, the zero time
// when it is malformed.
func (o OrderID) Time() time.Time {
	id, err := ulid.ParseStrict(string(o))
	if err != nil {
		return time.Time{}
	}
	return ulid.Time(id.Time())
}
