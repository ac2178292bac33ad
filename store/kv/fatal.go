package kv

import (
	"errors"
	"slices"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// errNotSynced means that it is unknown whether a record has been written to disk.
var errNotSynced = errors.New("unknown whether the record was written")

// isDiskFull reports whether err means that the disk is full. In that case, the disk's contents are
// known.
func isDiskFull(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(is error) bool {
		return errors.Is(err, is)
	})
}

// fail permanently stops all reading and writing, because the disk's contents are unknown until the next daemon reads
// them. The outcome of every transaction that has not been acknowledged yet, and of every later one, is unknown
// (CodeTimeout). These transactions must not be reported as refused, because their records may have been written.
// Config.Failed is called before any waiting caller receives the error.
func (d *DB) fail(cause error) error {
	err := &bourse.Error{Code: bourse.CodeTimeout, Message: "outcome unknown: the worker's store could not access its disk", Err: cause}
	if !d.failed.CompareAndSwap(nil, err) {
		return d.failed.Load()
	}
	d.cfg.Log.Error("store failed, contents of its disk unknown", "err", cause)
	if d.cfg.Failed != nil {
		d.cfg.Failed(err)
	}
	return err
}

// failure returns the error that fail has recorded, or nil if the store has not failed.
func (d *DB) failure() error {
	if err := d.failed.Load(); err != nil {
		return err
	}
	return nil
}
