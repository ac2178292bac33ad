package wire

import "time"

// Stamp says which transaction wrote a version of a row.
type Stamp struct {
	Position
	At int64
}

// Version is a version of a row: all that is known of it.
type Version struct {
	Stamp
	Table, Key string
	Shared     bool
	Deleted    bool    // a tombstone, of a shared row
	Clock      Clock   // of a shared row
	Columns    Columns // those that differ from their default
	Hash       uint64
	Proof      Proof // of a shared row that is about to be written
	Placed     bool  // of a machine or volume that is about to be written: a broker placed it in its app
}

// Size is about what the record takes.
func (r *Version) Size() int64 { return int64(len(r.Key) + r.Columns.Size()) }

// TimeOf returns the time that is so many nanoseconds after 1970.
func TimeOf(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

// clockBits are the bits of a Clock that count within its millisecond.
const clockBits = 16

// Time returns the physical part of the clock.
func (c Clock) Time() time.Time { return time.UnixMilli(int64(c >> clockBits)).UTC() }

// ClockAt returns the first clock of a moment.
func ClockAt(t time.Time) Clock { return Clock(max(t.UnixMilli(), 0)) << clockBits }
