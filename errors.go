package bourse

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
)

// Code says what the caller of a failed operation may do. The set is closed;
// each boundary (HTTP, command line) maps every code in one table.
type Code string

// The codes, with what they mean for the caller.
const (
	CodeInvalid            Code = "invalid"               // fix the request
	CodeUnauthorized       Code = "unauthorized"          // say who you are
	CodeForbidden          Code = "forbidden"             // other credentials
	CodeNotFound           Code = "not_found"             // it is not there
	CodeAlreadyExists      Code = "already_exists"        // take the one that is there
	CodeConflict           Code = "conflict"              // lease held, version moved: read again
	CodeFailedPrecondition Code = "failed_precondition"   // wrong state for this verb
	CodeInsufficient       Code = "insufficient_capacity" // other region or size, or later
	CodeRateLimited        Code = "rate_limited"          // nothing happened: wait
	CodeUnavailable        Code = "unavailable"           // nothing happened: retry with backoff
	CodeTimeout            Code = "timeout"               // outcome unknown: ask, or repeat with the same id
	CodeCanceled           Code = "canceled"              // the caller left
	CodeInternal           Code = "internal"              // our fault
)

// Codes lists every code, for the tests of the boundaries' tables.
func Codes() []Code {
	return []Code{
		CodeInvalid, CodeUnauthorized, CodeForbidden, CodeNotFound, CodeAlreadyExists, CodeConflict, CodeFailedPrecondition,
		CodeInsufficient, CodeRateLimited, CodeUnavailable, CodeTimeout, CodeCanceled, CodeInternal,
	}
}

// Error is the error of every boundary: Message is safe to show to the caller,
// Err is the cause for the log and may be nil.
type Error struct {
	Code    Code
	Message string
	Err     error
}

// Error returns the message, and the cause when the message does not tell it
// already.
func (e *Error) Error() string {
	if e.Err == nil || strings.Contains(e.Message, e.Err.Error()) {
		return e.Message
	}
	return e.Message + ": " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Errorf makes an Error; what a %w verb wraps becomes its cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

// CodeOf returns the code of the first Error in err's chain. A context's end
// without one reads as timeout or canceled, anything else as internal; nil has
// no code.
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

// MessageOf returns the text of err that may be shown to a caller: an internal
// error's cause stays in the log.
func MessageOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Message
	}
	if c := CodeOf(err); c != CodeInternal {
		return err.Error()
	}
	return "internal error"
}

// statusCanceled is the HTTP status of a request whose caller left before the
// answer, as proxies log it. Only logs and tests see it.
const statusCanceled = 499

var statuses = map[Code]int{
	CodeInvalid:            http.StatusBadRequest,
	CodeUnauthorized:       http.StatusUnauthorized,
	CodeForbidden:          http.StatusForbidden,
	CodeNotFound:           http.StatusNotFound,
	CodeAlreadyExists:      http.StatusConflict,
	CodeConflict:           http.StatusConflict,
	CodeFailedPrecondition: http.StatusPreconditionFailed,
	CodeInsufficient:       http.StatusUnprocessableEntity,
	CodeRateLimited:        http.StatusTooManyRequests,
	CodeUnavailable:        http.StatusServiceUnavailable,
	CodeTimeout:            http.StatusRequestTimeout,
	CodeCanceled:           statusCanceled,
	CodeInternal:           http.StatusInternalServerError,
}

// Status returns the HTTP status of a code, 500 for an unknown one. Codes share
// statuses (409), so the code in a body decides.
func (c Code) Status() int {
	if s, ok := statuses[c]; ok {
		return s
	}
	return http.StatusInternalServerError
}
