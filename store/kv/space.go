package kv

import (
	"errors"

	"github.com/bourse-dev/bourse"
)

// SpaceError returns CodeUnavailable if the disk has no space for a checkpoint, or for the log records that will be
// written until the checkpoint ends. While SpaceError returns an error, only records that fit into the reserved part of
// the log can be written. In the meantime, callers must not start new work, because that space is reserved for
// finishing work in progress. Once there is enough space, SpaceError returns nil again.
func (d *DB) SpaceError() error {
	if err := d.spaceErr.Load(); err != nil {
		return err
	}
	return nil
}

// noteFull makes SpaceError return an error if err means that the disk is full. The next successful
// checkpoint clears the error.
func (d *DB) noteFull(err error) {
	if isDiskFull(err) {
		d.spaceErr.Store(&bourse.Error{Code: bourse.CodeUnavailable, Message: bourse.MessageOf(d.refused(err)), Err: err})
	}
}

// growAhead reserves more space for the log while a checkpoint is in progress, so that the log does
// not run out of space. It is called by the store's goroutine, or by Open before that goroutine
// starts.
func (d *DB) growAhead() {
	if err := d.wal.growAhead(); err != nil {
		d.noteFull(err)
		if !d.checkpointing.Load() { // the checkpoint has ended in the meantime
			d.spaceErr.Store(nil)
		}
	}
}

// Faults returns how many commits and checkpoints could not be written to disk since the store was
// opened.
func (d *DB) Faults() uint64 { return d.faults.Load() }

// countFault counts a commit or checkpoint that could not be written to disk because of err. It
// returns the error for the caller of the store.
func (d *DB) countFault(err error) error {
	d.faults.Add(1)
	return d.refused(err)
}

func (d *DB) refused(err error) error {
	if _, known := errors.AsType[*bourse.Error](err); !known && isDiskFull(err) {
		return bourse.Errorf(bourse.CodeUnavailable, "the disk of %s is full: free some space, and the worker continues (%w)", d.cfg.Dir, err)
	}
	return unavailable(err)
}
