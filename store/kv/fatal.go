package kv

import (
	"errors"
	"slices"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// errNotSynced means that it is unknown whether a record is on the disk.
var errNotSynced = errors.New("unknown whether the record was written")

// full reports whether err means that there is no space left. In that case, the disk's contents
// are known.
func full(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(is error) bool {
		return errors.Is(err, is)
	})
}

// fail ends all reading and writing permanently, because the disk's contents are unknown until
// they are read again. Every unacknowledged transaction and every later one has an unknown
// outcome (CodeTimeout). It must not report them as refused, because the record may be on the
// disk. Config.Failed is called before any waiting caller receives the error.
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
