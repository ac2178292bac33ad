package edge

import (
	"context"
	"net/http"
	"sync"
)

// inProgress counts requests, also those whose connection has changed protocols:
// http.Server.Shutdown does not wait for these.
type inProgress struct {
	handler http.Handler

	mu      sync.Mutex
	n       int
	waiting chan struct{} // closed when n is 0; nil: no one waits
}

// ServeHTTP implements http.Handler.
func (p *inProgress) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.add(1)
	defer p.add(-1)
	p.handler.ServeHTTP(w, r)
}

func (p *inProgress) add(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.n += n; p.n == 0 && p.waiting != nil {
		close(p.waiting)
		p.waiting = nil
	}
}

// wait waits until no request is in progress, and reports whether that came.
func (p *inProgress) wait(ctx context.Context) bool {
	p.mu.Lock()
	if p.n == 0 {
		p.mu.Unlock()
		return true
	}
	done := make(chan struct{})
	p.waiting = done
	p.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}
