package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// stallTransport is a transport that aborts stalled requests. A request has stalled if neither headers nor further
// bytes of the body arrive for the given time. As long as data arrives, a transfer may take any amount of time.
type stallTransport struct {
	next  http.RoundTripper
	limit time.Duration
}

// RoundTrip sends a request. It returns errStalled if no response arrives within the time limit. The same limit applies
// to each read of the response's body.
func (s *stallTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	guard := &guard{cancel: cancel}
	guard.timer = time.AfterFunc(s.limit, guard.stall)
	resp, err := s.next.RoundTrip(req.WithContext(ctx))
	guard.timer.Stop()
	if err != nil {
		cancel(nil)
		return nil, guard.explain(err)
	}
	resp.Body = &stallingBody{ReadCloser: resp.Body, guard: guard, limit: s.limit}
	return resp, nil
}

// CloseIdleConnections closes the idle connections of the underlying transport. http.Client.CloseIdleConnections calls
// it.
func (s *stallTransport) CloseIdleConnections() {
	if t, ok := s.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// guard cancels a request when its timer fires.
type guard struct {
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	stalled atomic.Bool
}

func (g *guard) stall() {
	g.stalled.Store(true)
	g.cancel(errStalled)
}

// explain returns errStalled if the request was canceled because it had stalled, and err otherwise. errStalled is not a
// network timeout (net.Error), because the client would immediately retry after a timeout.
func (g *guard) explain(err error) error {
	if g.stalled.Load() {
		return errStalled
	}
	return err
}

type stallingBody struct {
	io.ReadCloser
	guard *guard
	limit time.Duration
}

// Read reads from the body. It limits the duration of each read, but not the time between reads.
func (b *stallingBody) Read(p []byte) (int, error) {
	b.guard.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	b.guard.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.guard.explain(err)
	}
	return n, err
}

// Close closes the body and ends the request.
func (b *stallingBody) Close() error {
	b.guard.timer.Stop()
	defer b.guard.cancel(nil)
	return b.ReadCloser.Close()
}
