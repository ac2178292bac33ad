package endpoint

import (
	"context"
	"errors"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Reply is an error with what its reply has beside the code and the text. Zero
// fields mean the table's status and the word "unknown".
type Reply struct {
	Err      error
	Status   int
	Word     machinesapi.ErrorStatus
	Text     string // instead of the error's own
	Order    bourse.OrderID
	Refusals []bourse.Refusal
}

// Error returns the error's own text.
func (e *Reply) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *Reply) Unwrap() error { return e.Err }

// writeError is the only way in which errors leave. Codes become statuses by
// machinesapi.StatusOf; texts about a machine get the Machines API's prefix,
// which its clients look for.
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
			status = http.StatusConflict // the machine's own worker is full: no other region helps
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
	_ = WriteJSON(w, status, body) // this body always encodes
}

// Whether a call to a worker may have changed something.
const (
	Reading  = false
	Changing = true
)

// WorkerError returns a worker's error to the caller: its code and message as
// they came, except that a missing machine has one text, and that what a lost
// answer means depends on whether something may have happened. Only what
// certainly did nothing may be unavailable (503): clients repeat those by
// themselves, creates included.
func WorkerError(ctx context.Context, worker bourse.WorkerID, changes bool, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return bourse.Errorf(bourse.CodeCanceled, "the caller left: %w", err)
	}
	code := bourse.CodeTimeout // of what carries none: the fabric lost the answer
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
