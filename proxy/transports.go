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
type transportKey struct {
	upstream       Upstream
	owner          string // whose connections they are: see Owner
	h2             bool
	responseHeader time.Duration
}

// pool has a transport for each way that was used lately.
type transportPool struct {
	limits Limits
	conns  *throttle.Fair

	mu      sync.Mutex
	entries map[transportKey]*machineTransport
	swept   time.Time
}

// backend is the connections over one way.
type machineTransport struct {
	*http.Transport
	lastUse time.Time // guarded by the pool's lock
}

// of returns the connections over a way.
func (p *transportPool) get(t *route.Target, way Upstream) *machineTransport {
	key := transportKey{way, Owner(t), t.Port.HTTP.H2Backend, p.limits.ResponseHeader}
	if d := t.Port.HTTP.IdleTimeout; d > 0 {
		key.responseHeader = d
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.entries == nil {
		p.entries = map[transportKey]*machineTransport{}
	}
	e := p.entries[key]
	if e == nil || now.Sub(p.swept) > sweepInterval {
		p.sweep(now)
	}
	if e == nil {
		e = newTransport(key, p.limits.Dial, p.conns)
		p.entries[key] = e
	}
	e.lastUse = now
	return e
}

// sweep forgets the connections over ways that have ended or were not used for a
// while. Requests there go on to their end.
func (p *transportPool) sweep(now time.Time) {
	p.swept = now
	for k, e := range p.entries {
		if now.Sub(e.lastUse) > sweepInterval || isClosed(k.upstream) {
			e.CloseIdleConnections()
			delete(p.entries, k)
		}
	}
}

func (p *transportPool) close() {
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
func errConnectionShare() error {
	const text = "this proxy has as many connections as it can open, and this app's organization has the most of them"
	return &statusError{status: http.StatusServiceUnavailable, text: text, err: bourse.Errorf(bourse.CodeRateLimited, text)}
}

// Dial connects to a machine within the budget of connections. The connection is
// closed when its owner has the most connections and another owner needs one. It
// returns CodeRateLimited if the budget is used up and no other owner has more.
func Dial(ctx context.Context, conns *throttle.Fair, owner string, way Upstream) (net.Conn, error) {
	c := &trackedConn{}
	if conns != nil {
		c.share = conns.Open(owner, func() { go c.shed() })
		if !c.share.Take(1, 0) {
			c.share.Release()
			return nil, errConnectionShare()
		}
	}
	inner, err := way.Dial(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.Conn = inner; err == nil && c.evicted {
		_ = inner.Close()
		err = errConnectionShare()
	}
	if err != nil && c.share != nil {
		c.share.Release()
	}
	if err != nil {
		return nil, err
	}
	return c, nil
}

func newTransport(key transportKey, limit time.Duration, conns *throttle.Fair) *machineTransport {
	var speaks http.Protocols
	speaks.SetHTTP1(!key.h2)
	speaks.SetUnencryptedHTTP2(key.h2)
	dials := make(chan struct{}, maxDials)
	most := 0
	if key.h2 {
		most = maxH2 // each carries some hundred requests
	}
	return &machineTransport{Transport: &http.Transport{
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
			c, err := Dial(soon, conns, key.owner, key.upstream)
			if err != nil && ctx.Err() == nil && isTimeout(err) { // the machine was not reached, and is not at anything: see timedOut
				return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to the machine: %s", err)
			}
			return c, err
		},
		DisableCompression:     true, // what it says goes through as it is
		MaxIdleConnsPerHost:    maxIdle,
		MaxConnsPerHost:        most,
		IdleConnTimeout:        keepIdle,
		ResponseHeaderTimeout:  key.responseHeader,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxReplyHead,
	}}
}

// counted is a connection that knows whether anything was sent on it, and has a place
// in the budget until it is closed.
type trackedConn struct {
	net.Conn
	written atomic.Int64
	share   *throttle.Hold // nil: there is no budget

	mu      sync.Mutex // guards over, and Conn until it is dialed
	evicted bool       // its place is another's
}

// shed closes the connection, whose place another has taken.
func (c *trackedConn) shed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evicted = true; c.Conn != nil {
		_ = c.Conn.Close()
	}
}

// isShed reports whether the connection was closed to give its place to another owner.
func (c *trackedConn) isShed() bool { return c != nil && c.share != nil && c.share.Over() }

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	if c.share != nil {
		c.share.Release()
	}
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *trackedConn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p))) // all of it, until it is known how much
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// CloseWrite ends what is sent; the machine's answer may follow.
func (c *trackedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
