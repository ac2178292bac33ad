package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

// maxFailure bounds the body of a failure that a client reads, and
// maxMessage the text that a handler puts into it.
const (
	maxFailure = 64 << 10
	maxMessage = 8 << 10
)

// Failure is the body of every reply that is an error.
type Failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

// WriteFailure answers a request with err as a [Failure]. The cause of an
// internal error stays with the caller, which logs it.
func WriteFailure(w http.ResponseWriter, err error) {
	f := FailureOf(err)
	writeBody(w, f.Code.Status(), f)
}

// FailureOf returns what the caller of a verb is to know of err.
func FailureOf(err error) *Failure {
	f := &Failure{Code: bourse.CodeOf(err), Message: bourse.MessageOf(err)}
	if !slices.Contains(bourse.Codes(), f.Code) { // a code that is none of ours
		f.Code = bourse.CodeInternal
	}
	if e, ok := errors.AsType[*bourse.Error](err); ok && f.Code == bourse.CodeInternal && e.Err != nil {
		f.Message = "internal error" // Errorf's message contains its cause
	}
	if len(f.Message) > maxMessage {
		f.Message = strings.ToValidUTF8(f.Message[:maxMessage], "") + "…"
	}
	return f
}

// readFailure rebuilds the error that a worker answered with.
func readFailure(ctx context.Context, from bourse.Member, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	if err != nil {
		return Lost(ctx, from, err)
	}
	return failureIn(from, resp.StatusCode, body)
}

// failureIn rebuilds the error that a worker answered with. An answer that is
// no Failure is CodeInternal: it is unknown what was done. What guards a listener
// refuses in JSON, which every client reads.
func failureIn(from bourse.Member, status int, body []byte) error {
	var f Failure
	if codec.Unmarshal(body, &f) != nil && json.Unmarshal(body, &f) != nil || f.Code == "" {
		return bourse.Errorf(bourse.CodeInternal, "worker %s answered with status %d and no reason", from.ID, status)
	}
	return f.err(from)
}

// err rebuilds the error that a worker has sent.
func (f *Failure) err(from bourse.Member) error {
	if !slices.Contains(bourse.Codes(), f.Code) {
		return bourse.Errorf(bourse.CodeInternal, "worker %s: %s (unknown code %s)", from.ID, f.Message, bourse.Quoted(string(f.Code)))
	}
	return &bourse.Error{Code: f.Code, Message: f.Message}
}

// Unsent is the error of a Fabric when the worker has not seen the request:
// CodeUnavailable, also when the caller left before it could be sent. It is [ErrUnsent].
func Unsent(to bourse.Member, cause error) error {
	return bourse.Errorf(bourse.CodeUnavailable, "worker %s cannot be reached: %w", to.ID, unsent{cause})
}

// ErrUnsent is in the error of a call that the worker has not seen; see [Unsent].
var ErrUnsent = errors.New("the request was not sent")

// unsent is the cause of a request that was not sent.
type unsent struct{ error }

// Is reports whether target is ErrUnsent.
func (unsent) Is(target error) bool { return target == ErrUnsent }

// Unwrap returns the cause.
func (u unsent) Unwrap() error { return u.error }

// ErrLost is in the error of a call whose answer did not arrive; see [Lost]. A caller whose
// request does no harm when it is repeated repeats it.
var ErrLost = errors.New("the answer was lost")

// lost is the cause of an answer's loss.
type lost struct{ error }

// Is reports whether target is ErrLost.
func (lost) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (l lost) Unwrap() error { return l.error }

// Lost is the error of a Fabric when the worker may have seen the request and
// its answer is missing or cut short: CodeCanceled when the caller left,
// CodeTimeout otherwise. It is [ErrLost].
func Lost(ctx context.Context, from bourse.Member, cause error) error {
	code := bourse.CodeTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = bourse.CodeCanceled
	}
	return bourse.Errorf(code, "the answer of worker %s was lost: %w", from.ID, lost{cause})
}
