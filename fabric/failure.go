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

// maxFailure is the maximum number of bytes that a client reads from an error reply. maxMessage is the maximum length
// of the message in a [Failure], in bytes.
const (
	maxFailure = 64 << 10
	maxMessage = 8 << 10
)

// Failure is the body of every error reply.
type Failure struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

// WriteFailure responds with err as a [Failure]. It omits the cause of an internal error,
// which the caller of WriteFailure should log.
func WriteFailure(w http.ResponseWriter, err error) {
	f := FailureOf(err)
	writeBody(w, f.Code.Status(), f)
}

// FailureOf returns the part of err that may be sent to a verb's caller.
func FailureOf(err error) *Failure {
	f := &Failure{Code: bourse.CodeOf(err), Message: bourse.MessageOf(err)}
	if !slices.Contains(bourse.Codes(), f.Code) { // the error has no code, or a code that Bourse does not define
		f.Code = bourse.CodeInternal
	}
	if e, ok := errors.AsType[*bourse.Error](err); ok && f.Code == bourse.CodeInternal && e.Err != nil {
		f.Message = "internal error" // the message may contain the cause
	}
	if len(f.Message) > maxMessage {
		f.Message = strings.ToValidUTF8(f.Message[:maxMessage], "") + "…"
	}
	return f
}

// readFailure returns the error in a worker's error reply.
func readFailure(ctx context.Context, from bourse.Member, resp *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxFailure))
	if err != nil {
		return Lost(ctx, from, err)
	}
	return failureIn(from, resp.StatusCode, body)
}

// failureIn returns the error in a worker's error reply. If the reply does not contain a Failure, the error has
// CodeInternal, because it is unknown what the worker did. A Failure is normally encoded in CBOR, but a listener's
// access checks reply in JSON, which every client can read.
func failureIn(from bourse.Member, status int, body []byte) error {
	var f Failure
	if codec.Unmarshal(body, &f) != nil && json.Unmarshal(body, &f) != nil || f.Code == "" {
		return bourse.Errorf(bourse.CodeInternal, "worker %s answered with status %d but returned no error", from.ID, status)
	}
	return f.err(from)
}

// err converts the failure to an error with the same code and message. If the code is not one of Bourse's, the error
// has CodeInternal and names the worker.
func (f *Failure) err(from bourse.Member) error {
	if !slices.Contains(bourse.Codes(), f.Code) {
		return bourse.Errorf(bourse.CodeInternal, "worker %s: %s (unknown code %s)", from.ID, f.Message, bourse.Quoted(string(f.Code)))
	}
	return &bourse.Error{Code: f.Code, Message: f.Message}
}

// Unsent returns the error for a call whose request did not reach the worker. The error wraps [ErrUnsent]. Its code is
// CodeUnavailable, even if the caller canceled the call before it was sent.
func Unsent(to bourse.Member, cause error) error {
	return bourse.Errorf(bourse.CodeUnavailable, "worker %s cannot be reached: %w", to.ID, unsent{cause})
}

// ErrUnsent is wrapped by the error of a call whose request did not reach the worker; see
// [Unsent].
var ErrUnsent = errors.New("the request was not sent")

// unsent wraps the reason why a request was not sent.
type unsent struct{ error }

// Is reports whether target is ErrUnsent.
func (unsent) Is(target error) bool { return target == ErrUnsent }

// Unwrap returns the cause.
func (u unsent) Unwrap() error { return u.error }

// ErrLost is wrapped by the error of a call whose answer did not arrive; see [Lost]. The caller may repeat the request
// if repeating it is harmless.
var ErrLost = errors.New("the answer was lost")

// lost wraps the reason why an answer was lost.
type lost struct{ error }

// Is reports whether target is ErrLost.
func (lost) Is(target error) bool { return target == ErrLost }

// Unwrap returns the cause.
func (l lost) Unwrap() error { return l.error }

// Lost returns the error for a call that the worker may have received but whose answer is missing or incomplete. The
// error's code is CodeCanceled if the caller canceled the call, and CodeTimeout otherwise. It wraps [ErrLost].
func Lost(ctx context.Context, from bourse.Member, cause error) error {
	code := bourse.CodeTimeout
	if errors.Is(ctx.Err(), context.Canceled) {
		code = bourse.CodeCanceled
	}
	return bourse.Errorf(code, "the answer from worker %s was lost: %w", from.ID, lost{cause})
}
