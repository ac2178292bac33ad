package bourse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Code classifies an error by what the caller of the failed operation may do next. The constants
// below are the only codes. All APIs derive their statuses from the same table.
type Code string

// Error codes. The comment after each code tells the caller what to do.
const (
	CodeInvalid            Code = "invalid"               // fix the request
	CodeUnauthorized       Code = "unauthorized"          // authenticate
	CodeForbidden          Code = "forbidden"             // use other credentials
	CodeNotFound           Code = "not_found"             // check the name
	CodeAlreadyExists      Code = "already_exists"        // use the existing object
	CodeConflict           Code = "conflict"              // the lease is held or the version has changed: read the object again
	CodeFailedPrecondition Code = "failed_precondition"   // put the object into the required state first
	CodeInsufficient       Code = "insufficient_capacity" // choose another region or size, or wait
	CodeRateLimited        Code = "rate_limited"          // the call had no effect: wait
	CodeUnavailable        Code = "unavailable"           // the call had no effect: retry with backoff
	CodeTimeout            Code = "timeout"               // the outcome is unknown: look it up, or repeat the call with the same ID
	CodeCanceled           Code = "canceled"              // do nothing: the caller has disconnected
	CodeInternal           Code = "internal"              // report the error
)

// statusCanceled is the HTTP status that proxies log if a caller disconnects before the reply. It
// occurs only in logs and tests.
const statusCanceled = 499

// codes maps each code to its HTTP status and to the command line's exit status.
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

// Status returns the HTTP status for a code, or 500 if the code is unknown. Several codes have the
// status 409, so clients should read the code from the body of the reply. The Machines API requires
// other statuses in three cases: 422 if the name of an app is taken, 409 if a machine no longer
// fits on its own worker, and 412 if there is no capacity for a volume or for a machine that mounts
// one.
func (c Code) Status() int {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].http
		}
	}
	return http.StatusInternalServerError
}

// ExitStatus returns the exit status of a command that fails with code c, or 1 if the code is
// unknown.
func (c Code) ExitStatus() int {
	for i := range codes {
		if codes[i].code == c {
			return codes[i].exit
		}
	}
	return 1
}

// Error is the type of all errors that a package or server returns to its callers. Message may be
// shown to the caller. Err is the cause. It is meant for the log, and may be nil.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// Error returns the message. If the message does not contain the text of the cause, that text is
// appended.
func (e *Error) Error() string {
	if e.Err == nil || strings.Contains(e.Message, e.Err.Error()) {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause, or nil.
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error with a formatted message. The operand of a %w verb becomes the error's
// cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of the first Error in err's chain. If there is none, it returns
// CodeTimeout or CodeCanceled for a context's error, and CodeInternal for any other error. If err
// is nil, it returns "".
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

// MessageOf returns the text of err that may be shown to a caller. If err has no code, MessageOf
// returns a generic message instead of err's own text.
func MessageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if c := CodeOf(err); c != CodeInternal {
		return err.Error()
	}
	return "internal error"
}
