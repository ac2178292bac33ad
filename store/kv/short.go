package kv

import (
	"errors"

	"github.com/bourse-dev/bourse"
)

// Short returns CodeUnavailable when the disk has no space for a checkpoint, or
// none for the write-ahead log to grow until it ends; nil otherwise. What the log
// has a place for is then all that can be recorded. It is for the ends of what
// there is: callers refuse to begin anything new. When there is space Short ends
// by itself.
func (d *DB) Short() error {
	if err := d.short.Load(); err != nil {
		return err
	}
	return nil
}

// noteFull begins what Short reports, if err says that the disk is full. A
// checkpoint that succeeds ends it.
func (d *DB) noteFull(err error) {
	if full(err) {
		d.short.Store(&bourse.Error{Code: bourse.CodeUnavailable, Message: bourse.MessageOf(d.refused(err)), Err: err})
	}
}

// growAhead has the log grow before it is full, since a checkpoint has not ended.
// It is called by the store's goroutine, or before that is started.
func (d *DB) growAhead() {
	if err := d.wal.growAhead(); err != nil {
		d.noteFull(err)
		if !d.moving.Load() { // it has ended meanwhile
			d.short.Store(nil)
		}
	}
}

// Faults is how many commits and checkpoints the disk has not taken since the
// store was opened.
func (d *DB) Faults() uint64 { return d.faults.Load() }

// unwritten counts what the disk has not taken, and returns its error.
func (d *DB) unwritten(err error) error {
	d.faults.Add(1)
	return d.refused(err)
}

func (d *DB) refused(err error) error {
	if _, known := errors.AsType[*bourse.Error](err); !known && full(err) {
		return bourse.Errorf(bourse.CodeUnavailable, "the disk of %s is full: make room there, and it goes on by itself (%w)", d.cfg.Dir, err)
	}
	return unavailable(err)
}
