package upstream

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/loopback"
)

// Way leads to a port of a machine, for as long as its program runs. Its methods
// are safe for concurrent use.
type Upstream struct {
	pool     *Pool
	endpoint endpoint
	instance bourse.InstanceID
	boot     int
	port     int    // of the tunnel
	address  string // where the machine is reached directly; empty: through the tunnel
	done     chan struct{}
	active   atomic.Bool // it was used since the last renewal
	mayStart atomic.Bool // who uses it may have the machine started

	mu            sync.Mutex
	worker        bourse.Member // its worker. This and all below is guarded by mu
	err           error         // why the way has ended
	usedUntil     time.Time     // when the machine counts as used no more
	lastUsed      time.Time     // when it was last seen to be
	requests      int
	otherRequests int
	conns         map[*conn]struct{}
}

// newWay makes a way. w.mu is held.
func (w *Pool) newUpstream(at endpoint, to bourse.Member, reply *fabric.UseReply, now time.Time) *Upstream {
	way := &Upstream{
		pool: w, endpoint: at, instance: reply.Instance, boot: reply.Boot, port: reply.Port, address: w.direct(&to, reply),
		done: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	way.renew(to, reply, w.ttl(reply), now)
	return way
}

// loopbackAddr is the only address at which a machine is reached directly.
var loopbackAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// direct returns where a machine is reached directly, if its worker says so and
// is to be believed: see the package's comment.
func (w *Pool) direct(to *bourse.Member, reply *fabric.UseReply) string {
	at, err := netip.ParseAddrPort(reply.Address)
	if err != nil || at.Addr() != loopbackAddr || at.Port() == 0 || int(at.Port()) != reply.Port {
		return ""
	}
	if w.Host == "" || !loopback.OnThisHost(to.Address) {
		return ""
	}
	return at.String()
}

// Instance returns the machine's version.
func (y *Upstream) Instance() bourse.InstanceID { return y.instance }

// Done is closed when the way has ended: connections that are kept for other
// requests are of no more use.
func (y *Upstream) Done() <-chan struct{} { return y.done }

// Err returns why the way has ended, nil while it has not.
func (y *Upstream) Err() error {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err
}

// Begin counts a request in progress until end is called, which may be repeated.
func (y *Upstream) Begin() (end func()) {
	y.active.Store(true)
	y.mu.Lock()
	y.requests++
	y.mu.Unlock()
	return sync.OnceFunc(func() {
		y.active.Store(true)
		y.mu.Lock()
		y.requests--
		y.mu.Unlock()
	})
}

// Dial connects to the machine. The connection has CloseWrite, and outlives ctx.
// After an error the way has ended, unless ctx had: nothing was sent, and a caller
// that wants to go on uses the machine again.
// Codes: unavailable, and what the worker says of the machine.
func (y *Upstream) Dial(ctx context.Context) (net.Conn, error) {
	y.mu.Lock()
	to, err := y.worker, y.err
	y.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c, err := y.dial(ctx, to)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		y.close(err, false)
		return nil, err
	}
	out := &conn{halfCloser: c, upstream: y}
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err != nil {
		_ = c.Close() // nothing was sent
		return nil, y.err
	}
	y.conns[out] = struct{}{}
	y.active.Store(true)
	return out, nil
}

// dialTimeout is for a connection within the host.
const dialTimeout = 2 * time.Second

var dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: -1} // both ends end together

func (y *Upstream) dial(ctx context.Context, to bourse.Member) (halfCloser, error) {
	if y.address == "" {
		return fabric.DialTunnel(ctx, y.pool.Fabric, to, fabric.TunnelRequest{Machine: y.endpoint.machine, Port: uint16(y.port)})
	}
	c, err := dialer.DialContext(ctx, "tcp", y.address)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to machine %s: %w", y.endpoint.machine, err)
	}
	return c.(*net.TCPConn), nil
}

// good reports whether the machine still counts as used.
func (y *Upstream) isFresh(now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.err == nil && now.Before(y.usedUntil)
}

// renew makes the way last longer; false when it does not lead where the reply
// says.
func (y *Upstream) renew(to bourse.Member, reply *fabric.UseReply, ttl time.Duration, now time.Time) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	if y.err != nil || reply.State != bourse.StateStarted || reply.Instance != y.instance || reply.Boot != y.boot || reply.Port != y.port {
		return false
	}
	y.worker, y.otherRequests, y.lastUsed = to, max(reply.Others, 0), now
	y.usedUntil = now.Add(ttl - ttl/5) // its time began when the worker answered
	return true
}

// end ends the way. With cut its tunnels break, as its worker does not answer;
// otherwise they end when the machine's connections do.
func (y *Upstream) close(why error, cut bool) {
	y.mu.Lock()
	first := y.err == nil
	var cuts []*conn
	if first {
		y.err = why
		close(y.done)
	}
	if cut && y.address == "" {
		cuts = slices.Collect(maps.Keys(y.conns))
	}
	y.mu.Unlock()
	for _, c := range cuts {
		_ = c.Close() // who reads or writes gets an error
	}
}

func (y *Upstream) otherRequestCount() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.otherRequests
}

// halved is a connection whose sending side can be ended alone.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// conn is a connection of a way, which notices that bytes pass.
type conn struct {
	halfCloser
	upstream *Upstream
}

// Read reads what the machine has sent.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.halfCloser.Read(p)
	c.markActive(n)
	return n, err
}

// Write sends to the machine.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.halfCloser.Write(p)
	c.markActive(n)
	return n, err
}

func (c *conn) markActive(n int) {
	if n > 0 && !c.upstream.active.Load() {
		c.upstream.active.Store(true)
	}
}

// Close ends the connection.
func (c *conn) Close() error {
	c.upstream.mu.Lock()
	delete(c.upstream.conns, c)
	c.upstream.mu.Unlock()
	err := c.halfCloser.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
