package throttle

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/bourse-dev/bourse"
)

const (
	// idleTimeout is the maximum time between two parts of a body.
	idleTimeout = 10 * time.Second
	// bodyTimeout is the maximum time for a whole body. The largest body, 4 MiB, must therefore
	// arrive at 70 kB/s or more.
	bodyTimeout = time.Minute
)

// If the total is not given, [NewBodies] uses the process's memory limit divided by memoryDivisor,
// but at least minTotal and at most maxTotal bytes.
const (
	maxTotal      = 64 << 20
	minTotal      = 8 << 20
	memoryDivisor = 16
)

// Bodies limits how much memory a server uses for request bodies and large replies. Use [NewBodies]
// to create it.
type Bodies struct {
	budget  *FairBudget
	total   int64
	replies *semaphore.Weighted
	decode  *semaphore.Weighted
}

// NewBodies returns Bodies that allow total bytes for all request bodies together, and as many for
// all large replies. If total is 0, they allow a sixteenth of the process's memory limit, but at
// least 8 and at most 64 MiB.
func NewBodies(total int64) *Bodies {
	if total <= 0 {
		total = maxTotal
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			total = min(max(limit/memoryDivisor, minTotal), maxTotal)
		}
	}
	return &Bodies{budget: NewFairBudget(total), total: total, replies: semaphore.NewWeighted(total), decode: semaphore.NewWeighted(maxDecoding)}
}

// Handler wraps h. The limits apply to the bodies of all requests, and to the replies for which h
// calls [ReserveReply]. When h returns, the memory for the request's body is returned to the
// budget.
func (l *Bodies) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(below http.ResponseWriter, r *http.Request) {
		w := &replier{below, l}
		if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(w, r)
			return
		}
		now := time.Now()
		b := &body{ReadCloser: r.Body, limits: l, control: http.NewResponseController(w), until: now.Add(bodyTimeout)}
		b.hold = l.budget.Open(sender(r), b.cut)
		// The deadline also applies if h does not read the body, because the server then reads it
		// before it answers.
		b.deadline(now)
		defer b.end()
		limited := *r // a copy, because the server checks the type of r.Body
		limited.Body = b
		h.ServeHTTP(w, &limited)
	})
}

// body is a request's body. It is not safe for concurrent use.
type body struct {
	io.ReadCloser
	limits  *Bodies
	control *http.ResponseController
	until   time.Time // deadline for reading the whole body
	hold    *Hold
	held    int64 // number of bytes taken from the budget
	stream  bool

	mu    sync.Mutex
	ended bool // whether the request has ended; guarded by mu
}

// sender returns the principal for a request until its caller is identified: the caller's address.
func sender(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "address " + host
}

// BodyFor sets the principal whose share of the budget the request's body uses, such as the
// organization of the caller's token. The default is the caller's address. When the budget is used
// up, the principal whose bodies use the most memory loses one of them: the oldest that is still
// being read.
func BodyFor(r *http.Request, principal string) {
	if b, ok := r.Body.(*body); ok {
		b.hold.Move(principal)
	}
}

// cut aborts reading the body. It is called if another principal needs memory and this body's
// principal uses the most.
func (b *body) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Now().Add(-time.Second)) // some writers do not support deadlines
	}
}

func (b *body) end() {
	b.hold.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// Read implements [io.Reader]. Errors: invalid if the body arrives too slowly;
// rate_limited if the budget is used up.
func (b *body) Read(p []byte) (int, error) {
	if b.stream {
		return b.ReadCloser.Read(p)
	}
	b.deadline(time.Now())
	if b.hold.Over() { // checked after the deadline was set, because cut sets an earlier one
		return 0, errFull()
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.hold.Over():
		return 0, errFull()
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, bourse.Errorf(bourse.CodeInvalid, "the body arrived too slowly: the limits are %s between bytes and %s in total: %w", idleTimeout, bodyTimeout, err)
	default:
		// The server continues to read after the body to detect that the caller
		// disconnects.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if n > 0 && !b.take(int64(n)) {
		return 0, errFull()
	}
	if err == io.EOF {
		b.hold.Keep() // the request is being processed and will end soon
	}
	return n, err
}

// reserveDivisor determines how much of the budget is reserved for small bodies: the total divided
// by reserveDivisor.
const reserveDivisor = 4

// take takes n bytes from the budget. Large bodies must leave part of the budget for small ones, so
// that the server can still handle ordinary requests.
func (b *body) take(n int64) bool {
	reserve := int64(0)
	if b.held += n; b.held > smallBody {
		reserve = b.limits.total / reserveDivisor
	}
	return b.hold.Take(n, reserve)
}

func errFull() error {
	return bourse.Errorf(bourse.CodeRateLimited, "the server has no memory left for request bodies: try again later")
}

func (b *body) deadline(now time.Time) {
	at := now.Add(idleTimeout)
	if b.until.Before(at) {
		at = b.until
	}
	_ = b.control.SetReadDeadline(at) // some writers do not support deadlines
}

// StreamBody removes the limits from a request's body. Call it if the handler does not keep the
// whole body in memory.
func StreamBody(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.stream = true
		b.hold.Release()
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

// Limits for decoding bodies, in encoded bytes.
const (
	smallBody   = 64 << 10 // maximum size of a body that is decoded without waiting
	maxDecoding = 4 << 20  // maximum total size of larger bodies that are decoded at the same time
)

// DecodeBody calls decode, which must decode a request body of the given size in bytes. If too many
// large bodies are being decoded, it waits first. Errors: those of decode; canceled if the caller
// disconnects.
func DecodeBody(r *http.Request, size int, decode func() error) error {
	b, ok := r.Body.(*body)
	if !ok || size <= smallBody {
		return decode()
	}
	weight := int64(min(size, maxDecoding))
	if err := b.limits.decode.Acquire(r.Context(), weight); err != nil {
		return bourse.Errorf(bourse.CodeCanceled, "the caller disconnected: %w", context.Cause(r.Context()))
	}
	defer b.limits.decode.Release(weight)
	return decode()
}

// BodyError converts an error from reading a body through [http.MaxBytesReader] to the error that
// the handler should return. The code is invalid or rate_limited.
func BodyError(err error) error {
	if e, ok := errors.AsType[*bourse.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return bourse.Errorf(bourse.CodeInvalid, "the body exceeds %d bytes", e.Limit)
	}
	return bourse.Errorf(bourse.CodeInvalid, "the body was truncated: %w", err)
}
