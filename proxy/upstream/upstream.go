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

// Upstream provides connections to one port of a machine, until the machine stops or restarts. Its methods are safe
// for concurrent use.
type Upstream struct {
	pool     *Pool
	endpoint endpoint
	instance bourse.InstanceID
	boot     int
	port     int    // the port on the machine to which the tunnel leads
	address  string // the machine's direct address; "": use the tunnel
	done     chan struct{}
	active   atomic.Bool // the upstream was used since the latest renewal
	mayStart atomic.Bool // at least one user of the upstream permits starting the machine

	mu            sync.Mutex
	worker        bourse.Member // guarded by mu, like all fields below
	err           error         // why the upstream has ended
	usedUntil     time.Time     // when the machine stops counting as used
	lastUsed      time.Time     // when the upstream was last known to be in use
	requests      int
	otherRequests int
	conns         map[*conn]struct{}
}

// newUpstream returns a new upstream. The caller holds w.mu.
func (w *Pool) newUpstream(at endpoint, to bourse.Member, reply *fabric.UseReply, now time.Time) *Upstream {
	u := &Upstream{
		pool: w, endpoint: at, instance: reply.Instance, boot: reply.Boot, port: reply.Port, address: w.direct(&to, reply),
		done: make(chan struct{}), conns: map[*conn]struct{}{},
	}
	u.renew(to, reply, w.ttl(reply), now)
	return u
}

// loopbackAddr is the only IP address to which the proxy makes direct connections.
var loopbackAddr = netip.AddrFrom4([4]byte{127, 0, 0, 1})

// direct returns the address for direct connections to the machine. It returns "" if the worker has not reported an
// address, or if the address is not trusted (see the package comment).
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

// Instance returns the ID of the machine version that the upstream connects to.
func (u *Upstream) Instance() bourse.InstanceID { return u.instance }

// Done returns a channel that is closed when the upstream ends. Idle connections to the machine can then no longer be
// used.
func (u *Upstream) Done() <-chan struct{} { return u.done }

// Err returns the reason why the upstream has ended, or nil if it has not.
func (u *Upstream) Err() error {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err
}

// Begin counts a request as in progress until end is called. Calling end again has no effect.
func (u *Upstream) Begin() (end func()) {
	u.active.Store(true)
	u.mu.Lock()
	u.requests++
	u.mu.Unlock()
	return sync.OnceFunc(func() {
		u.active.Store(true)
		u.mu.Lock()
		u.requests--
		u.mu.Unlock()
	})
}

// Dial connects to the machine. The connection supports CloseWrite and stays open after ctx is done. If Dial fails
// although ctx is not done, the upstream has ended. The caller can then call Pool.Use again, because nothing was
// sent. Errors: unavailable, and the worker's errors about the machine.
func (u *Upstream) Dial(ctx context.Context) (net.Conn, error) {
	u.mu.Lock()
	to, err := u.worker, u.err
	u.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c, err := u.dial(ctx, to)
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		u.close(err, false)
		return nil, err
	}
	out := &conn{halfCloser: c, upstream: u}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil {
		_ = c.Close() // ignore the error, because nothing has been sent
		return nil, u.err
	}
	u.conns[out] = struct{}{}
	u.active.Store(true)
	return out, nil
}

// dialTimeout is the time limit for a direct connection to a machine on this host.
const dialTimeout = 2 * time.Second

var dialer = net.Dialer{Timeout: dialTimeout, KeepAlive: -1} // no keep-alive, because both ends are on the same host

func (u *Upstream) dial(ctx context.Context, to bourse.Member) (halfCloser, error) {
	if u.address == "" {
		return fabric.DialTunnel(ctx, u.pool.Fabric, to, fabric.TunnelRequest{Machine: u.endpoint.machine, Port: uint16(u.port)})
	}
	c, err := dialer.DialContext(ctx, "tcp", u.address)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "connect to machine %s: %w", u.endpoint.machine, err)
	}
	return c.(*net.TCPConn), nil
}

// isFresh reports whether the upstream has not ended and the machine still counts as used at the given time.
func (u *Upstream) isFresh(now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.err == nil && now.Before(u.usedUntil)
}

// renew extends the time for which the upstream can be used. It returns false if the upstream has ended, or if the
// machine has stopped or restarted.
func (u *Upstream) renew(to bourse.Member, reply *fabric.UseReply, ttl time.Duration, now time.Time) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err != nil || reply.State != bourse.StateStarted || reply.Instance != u.instance || reply.Boot != u.boot || reply.Port != u.port {
		return false
	}
	u.worker, u.otherRequests, u.lastUsed = to, max(reply.Others, 0), now
	u.usedUntil = now.Add(ttl - ttl/5) // leave a margin, because the worker's TTL started earlier
	return true
}

// close ends the upstream. If cut is set, close also closes the tunnels, for example because the worker does not
// answer. Otherwise, the tunnels end when the machine closes its connections.
func (u *Upstream) close(why error, cut bool) {
	u.mu.Lock()
	first := u.err == nil
	var cuts []*conn
	if first {
		u.err = why
		close(u.done)
	}
	if cut && u.address == "" {
		cuts = slices.Collect(maps.Keys(u.conns))
	}
	u.mu.Unlock()
	for _, c := range cuts {
		_ = c.Close() // makes pending reads and writes fail
	}
}

func (u *Upstream) otherRequestCount() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.otherRequests
}

// halfCloser is a connection whose sending side can be closed separately.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// conn is an upstream's connection. It marks the upstream as used whenever it transfers data.
type conn struct {
	halfCloser
	upstream *Upstream
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.halfCloser.Read(p)
	c.markActive(n)
	return n, err
}

// Write implements net.Conn.
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

// Close implements net.Conn. Subsequent calls return nil.
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
