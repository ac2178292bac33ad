package image

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"time"
)

// stalling aborts requests that stall: no headers, or nothing more of
// the body, within the time. However slow a transfer is, it may take as long as
// it moves.
type stalling struct {
	next  http.RoundTripper
	limit time.Duration
}

// RoundTrip sends a request; it and every read of the answer's body fail with
// errStalled when nothing comes for the limit.
func (s *stalling) RoundTrip(req *http.Request) (*http.Response, error) {
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

// CloseIdleConnections is what http.Client asks its transport for.
func (s *stalling) CloseIdleConnections() {
	if t, ok := s.next.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// guard ends a request when its timer fires.
type guard struct {
	cancel  context.CancelCauseFunc
	timer   *time.Timer
	stalled atomic.Bool
}

func (g *guard) stall() {
	g.stalled.Store(true)
	g.cancel(errStalled)
}

// explain returns errStalled for the cancellation that a stall made. The error must not
// look like a timeout of the network, which the client would try again at once.
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

// Read counts only the time that it waits itself, not the reader's.
func (b *stallingBody) Read(p []byte) (int, error) {
	b.guard.timer.Reset(b.limit)
	n, err := b.ReadCloser.Read(p)
	b.guard.timer.Stop()
	if err != nil && !errors.Is(err, io.EOF) {
		err = b.guard.explain(err)
	}
	return n, err
}

// Close ends the request.
func (b *stallingBody) Close() error {
	b.guard.timer.Stop()
	defer b.guard.cancel(nil)
	return b.ReadCloser.Close()
}
