package gossiptest

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/bourse-dev/bourse"
)

// api is the HTTP API of an end.
type api struct {
	handler http.Handler // nil if the end does not serve an API
}

// Serve sets the handler for the end's API.
func (e *End) Serve(h http.Handler) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.api.handler = h
}

// Caller returns a replication.Caller that calls the APIs of other ends from this end.
func (e *End) Caller() *MemoryCaller { return &MemoryCaller{e} }

// MemoryCaller sends HTTP requests from one end of a Memory network to others.
type MemoryCaller struct{ from *End }

// Call sends a request to the end at the given member's API address. It returns once it has
// received the whole response body.
func (c *MemoryCaller) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	if err := c.travel(ctx, to); err != nil {
		return nil, err
	}
	h := c.handler(to)
	if h == nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "%s: connection refused", to.ID)
	}
	answer := make(chan *http.Response, 1)
	go func() { answer <- serve(h, req.WithContext(ctx)) }() //nolint:bodyclose // the caller closes it
	var resp *http.Response
	select {
	case resp = <-answer:
	case <-ctx.Done():
		return nil, bourse.Errorf(bourse.CodeTimeout, "%s: %w", to.ID, ctx.Err())
	}
	if err := c.travel(ctx, to); err != nil {
		return nil, bourse.Errorf(bourse.CodeTimeout, "the answer was lost: %w", err)
	}
	return resp, nil
}

func (c *MemoryCaller) handler(to bourse.Member) http.Handler {
	c.from.net.mu.Lock()
	defer c.from.net.mu.Unlock()
	if end := c.from.net.apis[to.Address]; end != nil {
		return end.api.handler
	}
	return nil
}

// travel waits for the time that a message takes to get from one end to the other. If the two ends
// are partitioned, it waits until ctx is done, as if the message had been lost.
func (c *MemoryCaller) travel(ctx context.Context, to bourse.Member) error {
	n := c.from.net
	n.mu.Lock()
	end := n.apis[to.Address]
	late, refused := n.late(), end == nil || end.dead
	cut := !refused && !c.from.reaches(end)
	n.mu.Unlock()
	if refused {
		return bourse.Errorf(bourse.CodeUnavailable, "%s: connection refused", to.ID)
	}
	if cut {
		<-ctx.Done()
		return bourse.Errorf(bourse.CodeUnavailable, "%s cannot be reached: %w", to.ID, ctx.Err())
	}
	if late == 0 {
		return nil
	}
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return bourse.Errorf(bourse.CodeTimeout, "%s: %w", to.ID, ctx.Err())
	}
}

// serve runs a handler and returns its response. If the handler aborts, reading the response body
// fails.
func serve(h http.Handler, req *http.Request) *http.Response {
	w := httptest.NewRecorder()
	aborted := func() (aborted bool) {
		defer func() {
			if p := recover(); p != nil {
				if err, ok := p.(error); !ok || !errors.Is(err, http.ErrAbortHandler) {
					panic(p)
				}
				aborted = true
			}
		}()
		h.ServeHTTP(w, req)
		return false
	}()
	resp := w.Result()
	if aborted {
		resp.Body = io.NopCloser(io.MultiReader(resp.Body, broken{}))
	}
	return resp
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
