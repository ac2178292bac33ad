package bourse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Code classifies an error by what the caller of the failed operation may do. The set
// is closed: every boundary takes its statuses from one table.
type Code string

// The error codes.
const (
	CodeInvalid            Code = "invalid"               // fix the request
	CodeUnauthorized       Code = "unauthorized"          // authenticate
	CodeForbidden          Code = "forbidden"             // use other credentials
	CodeNotFound           Code = "not_found"             // check the name
	CodeAlreadyExists      Code = "already_exists"        // use the existing object
	CodeConflict           Code = "conflict"              // lease held or version changed: read again
	CodeFailedPrecondition Code = "failed_precondition"   // put the object into the required state first
	CodeInsufficient       Code = "insufficient_capacity" // choose another region or size, or wait
	CodeRateLimited        Code = "rate_limited"          // nothing happened: wait
	CodeUnavailable        Code = "unavailable"           // nothing happened: retry with backoff
	CodeTimeout            Code = "timeout"               // outcome unknown: ask, or repeat with the same id
	CodeCanceled           Code = "canceled"              // the caller disconnected
	CodeInternal           Code = "internal"              // report it
)

// statusCanceled is the HTTP status that proxies log when a caller disconnects before
// the reply. It appears only in logs and tests.
const statusCanceled = 499

// codes lists every code with its HTTP status and the exit status of the command line.
var codes = []struct {
	code       Code
	http, exit int
}{
	{CodeInvalid, http.StatusBadRequest, 2},
	{CodeUnauthorized, http.StatusUnauthorized, 4},
	{CodeForbidden, http.StatusForbidden, 4},
	{CodeNotFound, http.StatusNotFound, 3},
	{CodeAlreadyExists, http.StatusConflict, 5},
	{CodeConflict, http.StatusConflict, 5},
	{CodeFailedPrecondition, http.StatusPreconditionFailed, 5},
	{CodeInsufficient, http.StatusUnprocessableEntity, 6},
	{CodeRateLimited, http.StatusTooManyRequests, 7},
	{CodeUnavailable, http.StatusServiceUnavailable, 7},
	{CodeTimeout, http.StatusRequestTimeout, 8},
	{CodeCanceled, statusCanceled, 130},
	{CodeInternal, http.StatusInternalServerError, 1},
}

// Codes returns all codes.
func Codes() []Code {
	out := make([]Code, len(codes))
	for i := range codes {
		out[i] = codes[i].code
	}
	return out
}

// Status returns the HTTP status of a code, 500 for an unknown one. Codes share
// statuses (409), so the code in a reply's body decides. The Machines API uses another
// status in three cases: 422 for an app's name that is taken, 409 for a machine that no
// longer fits on its own worker, and 412 for a lack of capacity for a volume, or for a
// machine that mounts one.
func (c Code) Status() int {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].http
		}
	}
	return http.StatusInternalServerError
}

// ExitStatus returns the exit status of a command that fails with a code, 1 for an
// unknown one.
func (c Code) ExitStatus() int {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].exit
		}
	}
	return 1
}

// Error is the error type of every boundary. Message is safe to show to the caller.
// Err is the cause, for the log, and may be nil.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// Error returns the message, followed by the cause unless the message already
// contains it.
func (e *Error) Error() string {
	if e.Err == nil || strings.Contains(e.Message, e.Err.Error()) {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with the formatted message. The operand of a %w verb becomes
// its cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of the first Error in err's chain. Without one it returns
// CodeTimeout or CodeCanceled for a context's error and CodeInternal for any other. It
// returns "" for nil.
func CodeOf(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return CodeTimeout
	case errors.Is(err, context.Canceled):
		return CodeCanceled
	}
	return CodeInternal
}

// MessageOf returns the text of err that is safe to show to a caller. It hides the text
// of errors without a code.
func MessageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if c := CodeOf(err); c != CodeInternal {
		return err.Error()
	}
	return "internal error"
}
