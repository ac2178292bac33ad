package kv

import (
	"errors"
	"slices"
	"syscall"

	"github.com/bourse-dev/bourse"
)

// errNotSynced says that it is unknown whether a record is on the disk.
var errNotSynced = errors.New("the disk does not say whether it was written")

// full reports whether an error says that there is no space, which leaves no
// doubt about what is on the disk.
func full(err error) bool {
	return slices.ContainsFunc([]error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG}, func(is error) bool {
		return errors.Is(err, is)
	})
}

// fail ends all reading and writing, for ever: what the disk holds is unknown
// until it is read again. Every transaction that was not acknowledged by now, and
// every later one, has an unknown outcome (CodeTimeout), never a refusal: the
// record of what its caller asks for may be on the disk. Config.Failed is called
// before any of those who wait receives that.
func (d *DB) fail(cause error) error {
	err := &bourse.Error{Code: bourse.CodeTimeout, Message: "outcome unknown: the disk of the worker's store has failed", Err: cause}
	if !d.failed.CompareAndSwap(nil, err) {
		return d.failed.Load()
	}
	d.cfg.Log.Error("the store has failed: what is on its disk is unknown", "err", cause)
	if d.cfg.Failed != nil {
		d.cfg.Failed(err)
	}
	return err
}

// failure returns why nothing is read or written any more; nil when that is not so.
func (d *DB) failure() error {
	if err := d.failed.Load(); err != nil {
		return err
	}
	return nil
}
