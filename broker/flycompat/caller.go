package flycompat

import (
	"context"
	"io"
	"net/http"

	"github.com/bourse-dev/bourse/machinesapi"
)

// caller calls /v1 with the credentials of one request.
type caller struct{ *machinesapi.Client }

func newCaller(api http.Handler, r *http.Request) *caller {
	return &caller{&machinesapi.Client{
		BaseURL: "http://" + r.Host, HTTP: &http.Client{Transport: &inProcess{api, r}},
		Retries: -1, // no retries, because the client that sent the original request retries
	}}
}

// inProcess is an [http.RoundTripper] whose requests are served by a handler in this process. The handler sees the
// original request's remote address and credentials.
type inProcess struct {
	api      http.Handler
	original *http.Request
}

// RoundTrip returns the reply once the handler has sent the header. The handler continues while the caller reads
// the body. Closing the body waits until the handler has returned.
func (p *inProcess) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancel(req.Context())
	inner := req.Clone(ctx)
	inner.Host, inner.RemoteAddr, inner.TLS = p.original.Host, p.original.RemoteAddr, p.original.TLS
	inner.RequestURI = req.URL.RequestURI()
	if inner.Body == nil {
		inner.Body = http.NoBody
	}
	for _, name := range []string{"Authorization", "User-Agent"} {
		if v := p.original.Header.Values(name); len(v) > 0 {
			inner.Header[name] = v
		}
	}
	read, write := io.Pipe()
	w := &replyWriter{header: http.Header{}, started: make(chan struct{}), body: write}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer w.finish()
		p.api.ServeHTTP(w, inner)
	}()
	<-w.started
	return &http.Response{
		Status: http.StatusText(w.status), StatusCode: w.status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: w.sent, Body: &replyBody{read, cancel, done}, ContentLength: -1, Request: req,
	}, nil
}

// replyWriter is the [http.ResponseWriter] to which the handler writes a reply.
type replyWriter struct {
	header  http.Header
	body    *io.PipeWriter
	started chan struct{} // closed once status and sent are set
	status  int
	sent    http.Header
}

// Header implements [http.ResponseWriter].
func (w *replyWriter) Header() http.Header { return w.header }

// WriteHeader sends the status and the header. Later calls have no effect.
func (w *replyWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status, w.sent = status, w.header.Clone()
		close(w.started)
	}
}

// Write blocks until the reader has consumed the bytes.
func (w *replyWriter) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(b)
}

// Flush does nothing, because Write does not buffer.
func (w *replyWriter) Flush() {}

// finish ends the reply once the handler has returned. If the handler panicked, the reader sees a
// truncated reply, as it would over a network connection.
func (w *replyWriter) finish() {
	if recover() != nil {
		w.WriteHeader(http.StatusInternalServerError)
		_ = w.body.CloseWithError(io.ErrUnexpectedEOF)
		return
	}
	w.WriteHeader(http.StatusOK)
	_ = w.body.Close()
}

// replyBody is the body of a reply, as the client reads it.
type replyBody struct {
	*io.PipeReader
	cancel context.CancelFunc
	done   chan struct{} // closed when the handler has returned
}

// Close cancels the handler and waits until it has returned.
func (b *replyBody) Close() error {
	b.cancel()
	err := b.PipeReader.Close()
	<-b.done
	return err
}
