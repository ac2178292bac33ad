package wire

import "time"

// Stamp identifies the transaction that wrote a version of a row, and the time when the transaction
// was written.
type Stamp struct {
	Position
	At int64
}

// Version is one version of a row, together with its metadata.
type Version struct {
	Stamp
	Table, Key string
	Shared     bool
	Deleted    bool    // whether the version is a tombstone of a shared row
	Clock      Clock   // set only for shared rows
	Columns    Columns // the columns with non-default values
	Hash       uint64
	Proof      Proof // who signed the version; set only for a shared row that is about to be written
	Placed     bool  // whether a broker has placed the machine or volume in its app; set only when the version is about to be written
}

// Size returns the version's approximate size.
func (r *Version) Size() int64 { return int64(len(r.Key) + r.Columns.Size()) }

// TimeOf converts nanoseconds since 1970 to a time.
func TimeOf(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

// clockBits is the number of bits in a Clock's counter, which orders events within one millisecond.
const clockBits = 16

// Time returns the physical part of the clock value as a time.
func (c Clock) Time() time.Time { return time.UnixMilli(int64(c >> clockBits)).UTC() }

// ClockAt returns the smallest clock value at time t.
func ClockAt(t time.Time) Clock { return Clock(max(t.UnixMilli(), 0)) << clockBits }
