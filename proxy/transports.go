package proxy

import (
	"context"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/throttle"
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
	owner  string // whose connections they are: see Owner
	h2     bool
	answer time.Duration
}

// pool has a transport for each way that was used lately.
type pool struct {
	limits Limits
	conns  *throttle.Fair

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
	key := backendKey{way, Owner(t), t.Port.HTTP.H2Backend, p.limits.Answer}
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
		e = newBackend(key, p.limits.Dial, p.conns)
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

// Owner returns whose share of the proxy a target's requests use: its organization's.
// An app without one is on its own.
func Owner(t *route.Target) string {
	if t.App.Org != "" {
		return "organization " + t.App.Org
	}
	return "app " + t.App.ID
}

// errShed is the answer to a request whose connection to a machine would take, or
// took, more than its organization's share.
func errShed() error {
	const text = "this proxy has as many connections as it can open, and this app's organization has the most of them"
	return &refusal{status: http.StatusServiceUnavailable, text: text, err: bourse.Errorf(bourse.CodeRateLimited, text)}
}

// Dial connects to a machine within the budget of connections. The connection is
// closed when its owner has the most connections and another owner needs one. It
// returns CodeRateLimited if the budget is used up and no other owner has more.
func Dial(ctx context.Context, conns *throttle.Fair, owner string, way Way) (net.Conn, error) {
	c := &counted{}
	if conns != nil {
		c.hold = conns.Open(owner, func() { go c.shed() })
		if !c.hold.Take(1, 0) {
			c.hold.Release()
			return nil, errShed()
		}
	}
	inner, err := way.Dial(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Conn = inner; err == nil && c.over {
		_ = inner.Close()
		err = errShed()
	}
	if err != nil && c.hold != nil {
		c.hold.Release()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func newBackend(key backendKey, limit time.Duration, conns *throttle.Fair) *backend {
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
			c, err := Dial(soon, conns, key.owner, key.way)
			if err != nil && ctx.Err() == nil && timedOut(err) { // the machine was not reached, and is not at anything: see timedOut
				return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to the machine: %s", err)
			}
			return c, err
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

// counted is a connection that knows whether anything was sent on it, and has a place
// in the budget until it is closed.
type counted struct {
	net.Conn
	written atomic.Int64
	hold    *throttle.Hold // nil: there is no budget

	mu   sync.Mutex // guards over, and Conn until it is dialed
	over bool       // its place is another's
}

// shed closes the connection, whose place another has taken.
func (c *counted) shed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over = true; c.Conn != nil {
		_ = c.Conn.Close()
	}
}

// isShed reports whether the connection was closed to give its place to another owner.
func (c *counted) isShed() bool { return c != nil && c.hold != nil && c.hold.Over() }

// Close implements net.Conn.
func (c *counted) Close() error {
	if c.hold != nil {
		c.hold.Release()
	}
	return c.Conn.Close()
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
