package broker

import (
	"context"
	"errors"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// reply is an error with what its reply has beside the code and the text. Zero
// fields mean the table's status and the word "unknown".
type reply struct {
	err      error
	status   int
	word     machinesapi.ErrorStatus
	text     string // instead of the error's own
	order    bourse.OrderID
	refusals []bourse.Refusal
}

// Error gives the error's own text.
func (e *reply) Error() string { return e.err.Error() }

// Unwrap gives the error itself.
func (e *reply) Unwrap() error { return e.err }

// writeError is the only way in which errors leave. Codes become statuses by
// machinesapi.StatusOf; texts about a machine get the Machines API's prefix,
// which its clients look for.
func (b *Broker) writeError(w http.ResponseWriter, r *request, err error) {
	code := bourse.CodeOf(err)
	status := machinesapi.StatusOf(code)
	body := machinesapi.ErrorBody{Error: bourse.MessageOf(err), Status: machinesapi.StatusUnknown, Code: code, RequestID: r.id}
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
	if e, ok := errors.AsType[*reply](err); ok {
		body.OrderID, body.Refusals = e.order, e.refusals
		if e.text != "" {
			body.Error = e.text
		}
		if e.word != "" {
			body.Status = e.word
		}
		if e.status != 0 {
			status = e.status
		}
	}
	if (code == bourse.CodeRateLimited || code == bourse.CodeUnavailable) && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "1")
	}
	_ = writeJSON(w, status, body) // this body always encodes
}

// errNoMachine is what every id that leads nowhere gets.
func errNoMachine() error { return bourse.Errorf(bourse.CodeNotFound, "machine not found") }

// errNoApp has the exact text that clients compare.
func errNoApp() error { return bourse.Errorf(bourse.CodeNotFound, "app not found") }

// whether a call to a worker may have changed something.
const (
	reading  = false
	changing = true
)

// workerError gives a worker's error to the caller: its code and message as
// they came, except that a missing machine has one text, and that what a lost
// answer means depends on whether something may have happened. Only what
// certainly did nothing may be unavailable (503): clients repeat those by
// themselves, creates included.
func workerError(ctx context.Context, worker bourse.WorkerID, changes bool, err error) error {
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
