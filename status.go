package bourse

import "net/http"

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
