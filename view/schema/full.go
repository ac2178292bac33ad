package schema

import (
	"errors"
	"syscall"

	"zombiezen.com/go/sqlite"
)

// IsDiskFull reports whether an error means that the disk is full. It also recognizes certain I/O
// errors, because SQLite returns those if there is no space for the index of the write-ahead log.
func IsDiskFull(err error) bool {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return true
	}
	switch code := sqlite.ErrCode(err); code.ToPrimary() {
	case sqlite.ResultFull:
		return true
	case sqlite.ResultIOErr:
		return code == sqlite.ResultIOErrWrite || code == sqlite.ResultIOErrSHMSize || code == sqlite.ResultIOErrSHMMap || code == sqlite.ResultIOErrSHMOpen
	default:
		return false
	}
}
