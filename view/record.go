package view

import "time"

// stamp says which transaction wrote a version of a row.
type stamp struct {
	Position
	at int64
}

// record is a version of a row: all that is known of it.
type record struct {
	stamp
	table, key string
	shared     bool
	deleted    bool    // a tombstone, of a shared row
	clock      Clock   // of a shared row
	cols       columns // those that differ from their default, of a newer release's too
	hash       uint64
	proof      proof // of a shared row that is about to be written
}

// size is about what the record takes.
func (r *record) size() int64 { return int64(len(r.key) + r.cols.size()) }

func timeOf(nanoseconds int64) time.Time { return time.Unix(0, nanoseconds).UTC() }

// clockBits are the bits of a Clock that count within its millisecond.
const clockBits = 16

// Time gives the physical part of the clock.
func (c Clock) Time() time.Time { return time.UnixMilli(int64(c >> clockBits)).UTC() }

// clockAt gives the first clock of a moment.
func clockAt(t time.Time) Clock { return Clock(max(t.UnixMilli(), 0)) << clockBits }
