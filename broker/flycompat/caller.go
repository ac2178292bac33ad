package flycompat

import (
	"context"
	"io"
	"net/http"

	"github.com/bourse-dev/bourse/machinesapi"
)

// caller is /v1 as the client of one request may use it.
type caller struct{ *machinesapi.Client }

func newCaller(api http.Handler, r *http.Request) *caller {
	return &caller{&machinesapi.Client{
		BaseURL: "http://" + r.Host, HTTP: &http.Client{Transport: &inProcess{api, r}},
		Retries: -1, // the caller itself does that
	}}
}

// inProcess has a handler answer requests in the name of another one: from the
// same address, with the same credentials.
type inProcess struct {
	api http.Handler
	of  *http.Request
}

// RoundTrip returns the reply once its header is known; the handler goes on while
// the body is read, and has ended when it is closed.
func (p *inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	inner := req.Clone(ctx)
	inner.Host, inner.RemoteAddr, inner.TLS = p.of.Host, p.of.RemoteAddr, p.of.TLS
	inner.RequestURI = req.URL.RequestURI()
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	for _, name := range []string{"Authorization", "User-Agent"} {
		if v := p.of.Header.Values(name); len(v) > 0 {
			inner.Header[name] = v
		}
	}
	read, write := io.Pipe()
	w := &replyWriter{header: http.Header{}, begun: make(chan struct{}), body: write}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		defer w.end()
		p.api.ServeHTTP(w, inner)
	}()
	<-w.begun
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &replyBody{read, cancel, ended}, ContentLength: -1, Request: req,
	}, nil
}

// replyWriter is the handler's side of a reply.
type replyWriter struct {
	header http.Header
	body   *io.PipeWriter
	begun  chan struct{} // closed once these are set:
	status int
	sent   http.Header
}

// Header returns the header that is sent with the first byte.
func (w *replyWriter) Header() http.Header { return w.header }

// WriteHeader sends the status, once.
func (w *replyWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	}
}

// Write blocks until the bytes are read.
func (w *replyWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush has nothing to do: nothing is held back.
func (w *replyWriter) Flush() {}

// end is called when the handler has returned. One that panicked breaks its
// reply off, as a connection would.
func (w *replyWriter) end() {
	if recover() != nil {
		w.WriteHeader(http.StatusInternalServerError)
		_ = w.body.CloseWithError(io.ErrUnexpectedEOF)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = w.body.Close()
}

// replyBody is the client's side of a reply.
type replyBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	ended  chan struct{}
}

// Close ends the handler, and waits until it has.
func (b *replyBody) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.ended
	return err
}
