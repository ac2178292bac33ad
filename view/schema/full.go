package schema

import (
	"errors"
	"syscall"

	"zombiezen.com/go/sqlite"
)

// NoRoom reports whether an error says that the disk is full. SQLite calls it an
// error of the file where its log's index finds no space.
func NoRoom(err error) bool {
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
