package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/proxy/route"
)

// Connections to machines are kept for 4 seconds without a request: less than the
// servers in use keep theirs, so that a request rarely meets a connection that its
// machine is closing.
const (
	keepIdle      = 4 * time.Second
	maxIdle       = 512       // connections to one machine
	maxDials      = 64        // in progress to one machine: more would overflow what it has not accepted yet
	maxH2         = 64        // connections of HTTP/2 to one machine
	maxReplyHead  = 256 << 10 // bytes
	sweepInterval = time.Minute
)

// backendKey is all that a connection to a machine depends on.
type backendKey struct {
	way    Way
	h2     bool
	answer time.Duration
}

// pool has a transport for each way that was used lately.
type pool struct {
	limits Limits

	mu      sync.Mutex
	entries map[backendKey]*backend
	swept   time.Time
}

// backend is the connections over one way.
type backend struct {
	*http.Transport
	lastUse time.Time // guarded by the pool's lock
}

// of returns the connections over a way.
func (p *pool) of(t *route.Target, way Way) *backend {
	key := backendKey{way, t.Port.HTTP.H2Backend, p.limits.Answer}
	if d := t.Port.HTTP.IdleTimeout; d > 0 {
		key.answer = d
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries == nil {
		p.entries = map[backendKey]*backend{}
	}
	e := p.entries[key]
	if e == nil || now.Sub(p.swept) > sweepInterval {
		p.sweep(now)
	}
	if e == nil {
		e = newBackend(key, p.limits.Dial)
		p.entries[key] = e
	}
	e.lastUse = now
	return e
}

// sweep forgets the connections over ways that have ended or were not used for a
// while. Requests there go on to their end.
func (p *pool) sweep(now time.Time) {
	p.swept = now
	for k, e := range p.entries {
		if now.Sub(e.lastUse) > sweepInterval || ended(k.way) {
			e.CloseIdleConnections()
			delete(p.entries, k)
		}
	}
}

func ended(w Way) bool {
	select {
	case <-w.Done():
		return true
	default:
		return false
	}
}

func (p *pool) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, e := range p.entries {
		e.CloseIdleConnections()
		delete(p.entries, k)
	}
}

func newBackend(key backendKey, limit time.Duration) *backend {
	var speaks http.Protocols
	speaks.SetHTTP1(!key.h2)
	speaks.SetUnencryptedHTTP2(key.h2)
	dials := make(chan struct{}, maxDials)
	most := 0
	if key.h2 {
		most = maxH2 // each carries some hundred requests
	}
	return &backend{Transport: &http.Transport{
		Protocols: &speaks,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			select {
			case dials <- struct{}{}:
				defer func() { <-dials }()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			soon, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			c, err := key.way.Dial(soon)
			if err != nil && ctx.Err() == nil && timedOut(err) { // the machine was not reached, and is not at anything: see timedOut
				return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to the machine: %s", err)
			}
			if err != nil {
				return nil, err
			}
			return &counted{Conn: c}, nil
		},
		DisableCompression:     true, // what it says goes through as it is
		MaxIdleConnsPerHost:    maxIdle,
		MaxConnsPerHost:        most,
		IdleConnTimeout:        keepIdle,
		ResponseHeaderTimeout:  key.answer,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxReplyHead,
	}}
}

// counted is a connection that knows whether anything was sent on it.
type counted struct {
	net.Conn
	written atomic.Int64
}

// Write implements net.Conn.
func (c *counted) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p))) // all of it, until it is known how much
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// CloseWrite ends what is sent; the machine's answer may follow.
func (c *counted) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
