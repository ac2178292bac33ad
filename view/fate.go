package view

import (
	"errors"
	"fmt"
	"runtime/debug"

	"zombiezen.com/go/sqlite"
)

// fate says what has to be done about a failed batch.
type fate int

const (
	fateBadRow      fate = iota + 1 // something in it cannot be written: find out what and go on without
	fateUnavailable                 // the disk refuses: try again later
	fateDamaged                     // the file is broken: replace it
	fateKilled                      // a test ends us
)

// errKilled ends Run as if the process had been.
var errKilled = errors.New("killed by Config.Fault")

// panicError is a panic of the code that applied something.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recovered calls f and makes an error of its panic: what others send us must
// not bring us down.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}

// fateOf reads an error of SQLite, or of applying.
func fateOf(err error) fate {
	if errors.Is(err, errKilled) {
		return fateKilled
	}
	if _, ok := errors.AsType[*panicError](err); ok {
		return fateBadRow
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return fateDamaged
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultBusy,
		sqlite.ResultLocked, sqlite.ResultPerm, sqlite.ResultProtocol, sqlite.ResultInterrupt, sqlite.ResultAuth:
		return fateUnavailable
	default:
		return fateBadRow
	}
}
