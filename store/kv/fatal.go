package kv

import (
	"errors"
	"slices"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// errNotSynced means that it is unknown whether a record has been written to disk.
var errNotSynced = errors.New("unknown whether the record was written")

// isDiskFull reports whether err means that the disk is full. Unlike other write errors, a full disk does not put
// earlier writes in doubt.
func isDiskFull(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(is error) bool {
		return errors.Is(err, is)
	})
}

// fail permanently stops all reads and writes, because the disk's contents are unknown until the next daemon reads
// them. Every transaction that has not been acknowledged yet, and every later one, returns CodeTimeout: its outcome is
// unknown. CodeUnavailable would be wrong, because the transaction's record may have been written. fail calls
// Config.Failed before any waiting caller receives the error.
func (d *DB) fail(cause error) error {
	err := &bourse.Error{Code: bourse.CodeTimeout, Message: "outcome unknown: the worker's store could not access its disk", Err: cause}
	if !d.failed.CompareAndSwap(nil, err) {
		return d.failed.Load()
	}
	d.cfg.Log.Error("store failed; the contents of its disk are unknown", "err", cause)
	if d.cfg.Failed != nil {
		d.cfg.Failed(err)
	}
	return err
}

// failure returns the error recorded by fail, or nil if the store has not failed.
func (d *DB) failure() error {
	if err := d.failed.Load(); err != nil {
		return err
	}
	return nil
}
