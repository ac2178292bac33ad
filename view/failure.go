package view

import (
	"errors"
	"fmt"
	"runtime/debug"

	"zombiezen.com/go/sqlite"
)

// failure classifies a failed batch, and thereby determines how the writer handles it.
type failure int

const (
	failBadRow      failure = iota + 1 // a row or job in the batch cannot be written: find it and commit the others
	failUnavailable                    // the disk cannot be written to: retry later
	failDamaged                        // the file is damaged: replace it
	failKilled                         // a test simulates a killed process
)

// errKilled makes Run return as if the process had been killed.
var errKilled = errors.New("killed by Config.Fault")

// panicError reports a panic that occurred while a batch was being applied.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v", e.value) }

// recovered calls f. It converts a panic into an error, so that data from other members cannot crash the process.
func recovered(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &panicError{v, debug.Stack()}
		}
	}()
	return f()
}

// failureOf classifies an error from SQLite or from applying a batch.
func failureOf(err error) failure {
	if errors.Is(err, errKilled) {
		return failKilled
	}
	if _, ok := errors.AsType[*panicError](err); ok {
		return failBadRow
	}
	switch sqlite.ErrCode(err).ToPrimary() {
	case sqlite.ResultCorrupt, sqlite.ResultNotADB:
		return failDamaged
	case sqlite.ResultFull, sqlite.ResultIOErr, sqlite.ResultReadOnly, sqlite.ResultCantOpen, sqlite.ResultNoMem, sqlite.ResultBusy,
		sqlite.ResultLocked, sqlite.ResultPerm, sqlite.ResultProtocol, sqlite.ResultInterrupt, sqlite.ResultAuth:
		return failUnavailable
	default:
		return failBadRow
	}
}
