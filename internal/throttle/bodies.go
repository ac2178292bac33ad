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
	// idle is how long a caller may send nothing of a body.
	idle = 10 * time.Second
	// whole is how long all of a body may take: the largest, 4 MiB, at 70 kB/s.
	whole = time.Minute
)

// Bounds of what all bodies of a server take together, in bytes.
const (
	mostTotal  = 64 << 20
	leastTotal = 8 << 20
	ofMemory   = 16 // the part of the memory limit
)

// Bodies are the limits of one server. Make them with [NewBodies].
type Bodies struct {
	budget  *Fair
	total   int64
	replies *semaphore.Weighted
	decode  *semaphore.Weighted
}

// NewBodies makes limits that let bodies take total bytes together, and large replies
// as much; 0 means a sixteenth of the process's memory limit, between 8 and 64
// MiB.
func NewBodies(total int64) *Bodies {
	if total <= 0 {
		total = mostTotal
		if limit := debug.SetMemoryLimit(-1); limit < math.MaxInt64 {
			total = min(max(limit/ofMemory, leastTotal), mostTotal)
		}
	}
	return &Bodies{budget: NewFair(total), total: total, replies: semaphore.NewWeighted(total), decode: semaphore.NewWeighted(decodeAtOnce)}
}

// Handler makes h read the bodies of its requests within the limits, and answer
// within them where it calls [ReserveReply]. What a body took is released when h
// returns.
func (l *Bodies) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(below http.ResponseWriter, r *http.Request) {
		w := &replier{below, l}
		if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(w, r)
			return
		}
		now := time.Now()
		b := &body{ReadCloser: r.Body, limits: l, control: http.NewResponseController(w), until: now.Add(whole)}
		b.hold = l.budget.Open(sender(r), b.cut)
		// Also for a body that h does not read: the server itself reads on
		// before it answers.
		b.deadline(now)
		defer b.end()
		limited := *r // the server looks at what type r.Body has
		limited.Body = b
		h.ServeHTTP(w, &limited)
	})
}

// body is a request's body. Like any other it is for one goroutine at a time.
type body struct {
	io.ReadCloser
	limits  *Bodies
	control *http.ResponseController
	until   time.Time // when it must have come
	hold    *Hold
	held    int64 // of the budget
	stream  bool

	mu    sync.Mutex
	ended bool // the request has; guarded by mu
}

// sender is the principal of a request whose caller is not known yet.
func sender(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		host = r.RemoteAddr
	}
	return "address " + host
}

// BodyFor sets the principal whose share of the budget the request's body uses, such as
// the organization of the caller's token. The default is the caller's address. When
// the budget is used up, the principal that holds the most loses its oldest body that
// is still being read.
func BodyFor(r *http.Request, principal string) {
	if b, ok := r.Body.(*body); ok {
		b.hold.Move(principal)
	}
}

// cut breaks off the reading of the body: another principal needs the space, and this
// one's holds the most.
func (b *body) cut() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Now().Add(-time.Second)) // not every writer can
	}
}

func (b *body) end() {
	b.hold.Release()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
}

// Read reads within the limits. Codes: invalid (too slow), rate_limited.
func (b *body) Read(p []byte) (int, error) {
	if b.stream {
		return b.ReadCloser.Read(p)
	}
	b.deadline(time.Now())
	if b.hold.Over() { // after the deadline was set: cut sets an earlier one
		return 0, errFull()
	}
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.hold.Over():
		return 0, errFull()
	case err == nil:
	case errors.Is(err, os.ErrDeadlineExceeded):
		return n, bourse.Errorf(bourse.CodeInvalid, "the body came too slowly: at most %s between bytes, %s in all: %w", idle, whole, err)
	default:
		// The server goes on reading after the body, to see the caller leave.
		_ = b.control.SetReadDeadline(time.Time{})
	}
	if n > 0 && !b.take(int64(n)) {
		return 0, errFull()
	}
	if err == io.EOF {
		b.hold.Keep() // it is being worked on, and soon gone
	}
	return n, err
}

// reserve is the part of the budget, one fourth, that only small bodies may take.
const reserve = 4

// take takes n bytes of the budget. Large bodies leave a part to small ones, so that
// ordinary requests remain possible.
func (b *body) take(n int64) bool {
	spare := int64(0)
	if b.held += n; b.held > small {
		spare = b.limits.total / reserve
	}
	return b.hold.Take(n, spare)
}

func errFull() error {
	return bourse.Errorf(bourse.CodeRateLimited, "the server is reading as much as it can hold: repeat this later")
}

func (b *body) deadline(now time.Time) {
	at := now.Add(idle)
	if b.until.Before(at) {
		at = b.until
	}
	_ = b.control.SetReadDeadline(at) // not every writer can
}

// StreamBody ends the limits of a request's body: from here on it may take as long
// as it likes, and the handler keeps none of it.
func StreamBody(r *http.Request) {
	if b, ok := r.Body.(*body); ok {
		b.stream = true
		b.hold.Release()
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

// Bounds of decoding, in bytes of text.
const (
	// small is what is decoded without waiting for others.
	small        = 64 << 10
	decodeAtOnce = 4 << 20
)

// DecodeBody calls decode, which decodes size bytes of a request's body. Large
// bodies wait for one another.
func DecodeBody(r *http.Request, size int, decode func() error) error {
	b, ok := r.Body.(*body)
	if !ok || size <= small {
		return decode()
	}
	weight := int64(min(size, decodeAtOnce))
	if err := b.limits.decode.Acquire(r.Context(), weight); err != nil {
		return bourse.Errorf(bourse.CodeCanceled, "the caller left: %w", context.Cause(r.Context()))
	}
	defer b.limits.decode.Release(weight)
	return decode()
}

// BodyError is the error of a handler whose reading of a body, through
// [http.MaxBytesReader], ended with err. Codes: invalid, rate_limited.
func BodyError(err error) error {
	if e, ok := errors.AsType[*bourse.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return bourse.Errorf(bourse.CodeInvalid, "the body has more than %d bytes", e.Limit)
	}
	return bourse.Errorf(bourse.CodeInvalid, "the body was cut short: %w", err)
}
