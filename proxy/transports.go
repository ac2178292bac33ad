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

// Limits for connections to machines. An idle connection is closed after 4 seconds. Common servers keep idle
// connections open longer, so the proxy rarely uses a connection that the machine is about to close.
const (
	keepIdle      = 4 * time.Second
	maxIdle       = 512       // idle connections to one machine
	maxDials      = 64        // concurrent dials to one machine; more could overflow the machine's accept queue
	maxH2         = 64        // HTTP/2 connections to one machine
	maxReplyHead  = 256 << 10 // bytes of a reply's header
	sweepInterval = time.Minute
)

// transportKey identifies a transport. Requests with equal keys share a transport, and thus its connections.
type transportKey struct {
	upstream       Upstream
	owner          string // the owner of the connections; see Owner
	h2             bool
	responseHeader time.Duration
}

// transportPool contains the transports of recently used upstreams.
type transportPool struct {
	limits Limits
	conns  *throttle.FairBudget

	mu      sync.Mutex
	entries map[transportKey]*machineTransport
	swept   time.Time
}

// machineTransport manages connections to one upstream.
type machineTransport struct {
	*http.Transport
	lastUse time.Time // guarded by transportPool.mu
}

// get returns the transport for requests to a target's upstream, creating it if necessary.
func (p *transportPool) get(t *route.Target, up Upstream) *machineTransport {
	key := transportKey{up, Owner(t), t.Port.HTTP.H2Backend, p.limits.ResponseHeader}
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

// sweep removes the transports of upstreams that have ended or were not used recently. Their requests in progress
// continue.
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

// Owner returns the owner under which connections to a target's machines are counted in the connection budget. It is
// the app's organization or, if the app has none, the app itself.
func Owner(t *route.Target) string {
	if t.App.Org != "" {
		return "organization " + t.App.Org
	}
	return "app " + t.App.ID
}

// errConnectionShare returns the error for a request whose connection was refused or closed because its owner has
// used up its share of the connection budget.
func errConnectionShare() error {
	const text = "this app's organization has used up its share of this proxy's connections"
	return &statusError{status: http.StatusServiceUnavailable, text: text, err: bourse.Errorf(bourse.CodeRateLimited, text)}
}

// Dial connects to a machine, within the connection budget. If the budget is used up, a connection of the owner with
// the most connections is closed to make room. The new connection may itself be closed later for the same reason.
// Dial returns CodeRateLimited if the budget is used up and no other owner has more connections.
func Dial(ctx context.Context, conns *throttle.FairBudget, owner string, up Upstream) (net.Conn, error) {
	c := &trackedConn{}
	if conns != nil {
		c.share = conns.Open(owner, func() { go c.evict() })
		if !c.share.Take(1, 0) {
			c.share.Release()
			return nil, errConnectionShare()
		}
	}
	inner, err := up.Dial(ctx)
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

func newTransport(key transportKey, limit time.Duration, conns *throttle.FairBudget) *machineTransport {
	var protocols http.Protocols
	protocols.SetHTTP1(!key.h2)
	protocols.SetUnencryptedHTTP2(key.h2)
	dials := make(chan struct{}, maxDials)
	most := 0
	if key.h2 {
		most = maxH2 // enough, because one connection carries hundreds of requests
	}
	return &machineTransport{Transport: &http.Transport{
		Protocols: &protocols,
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
			if err != nil && ctx.Err() == nil && isTimeout(err) { // do not report a timeout, because the machine was not reached; see isTimeout
				return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to the machine: %s", err)
			}
			return c, err
		},
		DisableCompression:     true, // forward replies without changes
		MaxIdleConnsPerHost:    maxIdle,
		MaxConnsPerHost:        most,
		IdleConnTimeout:        keepIdle,
		ResponseHeaderTimeout:  key.responseHeader,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxReplyHead,
	}}
}

// trackedConn is a connection to a machine. It records the number of bytes sent, and counts against the connection
// budget until it is closed.
type trackedConn struct {
	net.Conn
	written atomic.Int64
	share   *throttle.Hold // the connection's share of the budget; nil: the budget is unlimited

	mu      sync.Mutex // guards evicted, and Conn until it is set
	evicted bool       // the connection was closed to make room for another owner's
}

// evict closes the connection to make room for another owner's connection.
func (c *trackedConn) evict() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evicted = true; c.Conn != nil {
		_ = c.Conn.Close()
	}
}

// wasEvicted reports whether the connection was closed to make room for another owner's connection.
func (c *trackedConn) wasEvicted() bool { return c != nil && c.share != nil && c.share.Over() }

// Close implements net.Conn.
func (c *trackedConn) Close() error {
	if c.share != nil {
		c.share.Release()
	}
	return c.Conn.Close()
}

// Write implements net.Conn.
func (c *trackedConn) Write(p []byte) (int, error) {
	c.written.Add(int64(len(p))) // assume that all bytes were sent until Write returns
	n, err := c.Conn.Write(p)
	c.written.Add(int64(n - len(p)))
	return n, err
}

// CloseWrite closes the sending side of the connection. The machine's reply may still arrive.
func (c *trackedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return c.Close()
}
