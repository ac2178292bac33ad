package fabric

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Held is a reply that is kept until it is complete: the http.ResponseWriter of
// a handler that answers a [Message]. Its zero value is empty, and has no space before its body.
type Held struct {
	header http.Header
	status int
	room   int
	cut    bool         // more was written than an answer may hold
	buf    bytes.Buffer // the space, and the body
}

// Header implements http.ResponseWriter.
func (h *Held) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}

// WriteHeader implements http.ResponseWriter.
func (h *Held) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

var errTooLong = errors.New("the reply is too long for a message")

// Write implements http.ResponseWriter.
func (h *Held) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.buf.Len()-h.room+len(p) > MaxAnswer {
		h.cut = true
		return 0, errTooLong
	}
	return h.buf.Write(p)
}

// SetReadDeadline is that of an http.ResponseController: what there is of the
// request is there.
func (h *Held) SetReadDeadline(time.Time) error { return nil }

// Status returns the reply's status.
func (h *Held) Status() int {
	if h.status == 0 {
		return http.StatusOK
	}
	return h.status
}

// Bytes returns the space and the body after it, valid until Release.
func (h *Held) Bytes() []byte { return h.buf.Bytes() }

const maxHeld = 64 << 10 // bytes of a reply whose memory is kept

var holds = sync.Pool{New: func() any { return new(Held) }}

// Hold returns an empty reply that has room bytes of space before its body.
func Hold(room int) *Held {
	h := holds.Get().(*Held)
	h.room = room
	h.buf.Write(noBytes[:room])
	return h
}

var noBytes [64]byte // the largest room that a caller passes

// Release frees a reply, which must not be read any more.
func (h *Held) Release() {
	if h.buf.Cap() > maxHeld {
		return
	}
	clear(h.header)
	h.status, h.cut = 0, false
	h.buf.Reset()
	holds.Put(h)
}

// ServeMessage has a handler answer a message into h. The request that the
// handler sees is like another one, from which it has the sender; new(http.Request)
// means no sender. It reports whether the reply is complete: a handler that panics
// breaks it off.
func ServeMessage(ctx context.Context, like *http.Request, m *Message, handler http.Handler, h *Held, log *slog.Logger) (whole bool) {
	u, err := url.ParseRequestURI(m.URI)
	if err != nil {
		WriteFailure(h, bourse.Errorf(bourse.CodeInvalid, "a call of %s", bourse.Quoted(m.URI)))
		return true
	}
	r := like.WithContext(ctx)
	r.Method, r.URL, r.RequestURI = m.Method, u, m.URI
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Header, r.Body, r.ContentLength = http.Header{}, http.NoBody, int64(len(m.Body))
	if len(m.Body) > 0 {
		r.Body = wholeBody{bytes.NewReader(m.Body)}
	}
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			whole = false
		default:
			log.Error("a call's handler panicked", "uri", m.URI, "panic", v, "stack", string(debug.Stack()))
			whole = false
		}
	}()
	handler.ServeHTTP(h, r)
	return !h.cut
}

// wholeBody is a request's body that is there.
type wholeBody struct{ *bytes.Reader }

// Close implements io.Closer.
func (wholeBody) Close() error { return nil }
