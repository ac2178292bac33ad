package fabric

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"time"

	"github.com/bourse-dev/bourse"
)

// BufferedReply is an http.ResponseWriter that stores a complete reply in memory. The zero value is
// empty.
type BufferedReply struct {
	header http.Header
	status int
	cut    bool // whether the handler wrote more than an Answer may contain
	buf    bytes.Buffer
}

// Header implements http.ResponseWriter.
func (h *BufferedReply) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}

// WriteHeader implements http.ResponseWriter.
func (h *BufferedReply) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

var errTooLong = errors.New("the reply is too long for a message")

// Write implements http.ResponseWriter.
func (h *BufferedReply) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.buf.Len()+len(p) > MaxAnswer {
		h.cut = true
		return 0, errTooLong
	}
	return h.buf.Write(p)
}

// SetReadDeadline implements the interface that http.ResponseController expects. It does nothing, because the whole
// request is already in memory.
func (h *BufferedReply) SetReadDeadline(time.Time) error { return nil }

// Status returns the reply's status.
func (h *BufferedReply) Status() int {
	if h.status == 0 {
		return http.StatusOK
	}
	return h.status
}

// Bytes returns the body.
func (h *BufferedReply) Bytes() []byte { return h.buf.Bytes() }

// ServeMessage passes a message to a handler and returns the answer. The handler's request is a copy of template with
// the message's contents, so template identifies the sender. For an unknown sender, pass new(http.Request). If the
// handler panics or its reply is too long, the answer is empty and has status 0.
func ServeMessage(ctx context.Context, template *http.Request, m *Message, handler http.Handler, log *slog.Logger) (a Answer) {
	var h BufferedReply
	u, err := url.ParseRequestURI(m.URI)
	if err != nil {
		WriteFailure(&h, bourse.Errorf(bourse.CodeInvalid, "invalid URI %s", bourse.Quoted(m.URI)))
		return Answer{h.Status(), h.Bytes()}
	}
	r := template.WithContext(ctx)
	r.Method, r.URL, r.RequestURI = m.Method, u, m.URI
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Header, r.Body, r.ContentLength = http.Header{}, http.NoBody, int64(len(m.Body))
	if len(m.Body) > 0 {
		r.Body = wholeBody{bytes.NewReader(m.Body)}
	}
	defer func() {
		switch v := recover(); v {
		case nil, http.ErrAbortHandler:
		default:
			log.Error("handler of call panicked", "uri", m.URI, "panic", v, "stack", string(debug.Stack()))
		}
	}()
	handler.ServeHTTP(&h, r)
	if h.cut {
		return Answer{}
	}
	return Answer{h.Status(), h.Bytes()}
}

// wholeBody is a request body in memory.
type wholeBody struct{ *bytes.Reader }

// Close implements io.Closer.
func (wholeBody) Close() error { return nil }
