package endpoint

import (
	"context"
	"errors"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Reply is an error with additional details for the HTTP reply. If Status is zero, the status is derived from the
// error's code.
type Reply struct {
	Err      error
	Status   int
	Word     machinesapi.ErrorStatus
	Text     string // text of the reply; "": the error's own message
	Order    bourse.OrderID
	Refusals []bourse.Refusal
}

// Error returns the error's own message.
func (e *Reply) Error() string { return e.Err.Error() }

// Unwrap returns the wrapped error.
func (e *Reply) Unwrap() error { return e.Err }

// writeError writes an error reply; every error reply goes through this function. The status is derived from the
// error's code (machinesapi.StatusOf), unless the error is a Reply that specifies a different one. Messages about a
// machine get the prefix that Machines API clients look for.
func writeError(w http.ResponseWriter, r *Request, err error) {
	code := bourse.CodeOf(err)
	status := code.Status()
	body := machinesapi.ErrorBody{Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: code, RequestID: r.ID}
	if code == bourse.CodeInsufficient {
		body.Status = machinesapi.StatusInsufficientCapacity
	}
	if r.PathValue("volume") != "" && code != bourse.CodeInsufficient {
		body.Error = machinesapi.WithPrefix(code, body.Error)
	}
	if r.PathValue("machine") != "" {
		body.Error = machinesapi.WithPrefix(code, body.Error)
		if code == bourse.CodeInsufficient {
			status = http.StatusConflict // the machine's own worker is full, so trying another region would not help
		}
	}
	if e, ok := errors.AsType[*Reply](err); ok {
		body.OrderID, body.Refusals = e.Order, e.Refusals
		if e.Text != "" {
			body.Error = e.Text
		}
		if e.Word != "" {
			body.Status = e.Word
		}
		if e.Status != 0 {
			status = e.Status
		}
	}
	if (code == bourse.CodeRateLimited || code == bourse.CodeUnavailable) && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	_ = WriteJSON(w, status, body) // this body can always be encoded
}

// Values for the changes argument of WorkerError.
const (
	Reading  = false
	Changing = true
)

// WorkerError converts a worker's error to an error for the caller. changes specifies whether the call could have
// changed anything on the worker.
//
// The code and message stay the same, with two exceptions. All errors about missing machines have the same message. If
// the worker's response was lost, the error is unavailable (503) for a read, and a timeout with an unknown outcome for
// a change. Clients automatically retry requests after a 503, even creates, so 503 must not be returned if the request
// may have had an effect.
func WorkerError(ctx context.Context, worker bourse.WorkerID, changes bool, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return bourse.Errorf(bourse.CodeCanceled, "the caller disconnected: %w", err)
	}
	code := bourse.CodeTimeout // an error without a code means that the worker's response was lost
	e, coded := errors.AsType[*bourse.Error](err)
	if coded {
		code = e.Code
	}
	switch {
	case code == bourse.CodeNotFound:
		return &bourse.Error{Code: code, Message: "machine not found", Err: err}
	case code == bourse.CodeTimeout && !changes:
		return &bourse.Error{Code: bourse.CodeUnavailable, Message: "worker " + string(worker) + " does not answer", Err: err}
	case !coded:
		return &bourse.Error{Code: code, Message: "worker " + string(worker) + " did not answer: the outcome is unknown", Err: err}
	}
	return err
}
