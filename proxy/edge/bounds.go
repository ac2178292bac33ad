package edge

import (
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse/internal/throttle"
)

// limitedListener limits the number of open connections, both in total and for each source. It immediately closes
// connections beyond these limits. Therefore, a source that opens too many connections affects only clients from the
// same source.
type limitedListener struct {
	net.Listener
	limits  Limits
	clients *throttle.FairBudget // limits all listeners together; nil: no such limit
	exempt  []netip.Prefix       // sources to which the per-source limit does not apply
	log     *slog.Logger

	mu         sync.Mutex
	open       int
	sources    map[netip.Prefix]int // number of open connections of each source; sources without open connections are removed
	lastLogged time.Time            // when refused connections were last logged
	refused    int                  // number of connections refused since lastLogged
}

// limitedConn is a TCP connection that counts toward the limits until it is closed.
type limitedConn struct {
	*net.TCPConn
	release func()
}

// Close implements net.Conn.
func (c *limitedConn) Close() error {
	c.release()
	return c.TCPConn.Close()
}

// Accept implements net.Listener.
func (b *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := b.Listener.Accept()
		if err != nil {
			return nil, err
		}
		conn, ok := c.(*net.TCPConn)
		if !ok { // not a TCP connection, which happens only in tests
			return c, nil
		}
		source, bound := b.sourceOf(conn)
		if !b.acquire(source, bound) {
			_ = conn.SetLinger(0) // avoid the TIME_WAIT state
			_ = conn.Close()
			continue
		}
		release := func() { b.release(source, bound) }
		if b.clients != nil {
			hold := b.share(conn, source, bound)
			if hold == nil {
				release()
				_ = conn.SetLinger(0)
				_ = conn.Close()
				continue
			}
			release = func() { b.release(source, bound); hold.Release() }
		}
		return &limitedConn{conn, sync.OnceFunc(release)}, nil
	}
}

// share counts a connection against the connection budget that all listeners share. If the budget is used up, share
// closes the oldest connection of the source with the most connections. If no other source has more connections than
// this connection's source, share returns nil instead. It never closes connections of load balancers, because each may
// carry many clients' requests.
func (b *limitedListener) share(c *net.TCPConn, source netip.Prefix, bound bool) *throttle.Hold {
	principal, cut := source.String(), func() { _ = c.Close() }
	if !bound {
		principal, cut = "load balancers", nil
	}
	hold := b.clients.Open(principal, cut)
	if !hold.Take(1, 0) {
		hold.Release()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refuse(source)
		return nil
	}
	return hold
}

// sourceOf returns a connection's source: the IPv4 address, or the /64 that contains the IPv6 address, because a single
// host usually controls a whole /64. bound reports whether the per-source limit applies.
func (b *limitedListener) sourceOf(c *net.TCPConn) (source netip.Prefix, bound bool) {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return source, false
	}
	from := at.AddrPort().Addr().Unmap().WithZone("")
	if contains(b.exempt, from) {
		return source, false
	}
	bits := 32
	if from.Is6() {
		bits = 64
	}
	source, err := from.Prefix(bits)
	return source, err == nil
}

func (b *limitedListener) acquire(source netip.Prefix, bound bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open >= b.limits.Connections || bound && b.sources[source] >= b.limits.PerSource {
		b.refuse(source)
		return false
	}
	b.open++
	if bound {
		b.sources[source]++
	}
	return true
}

func (b *limitedListener) release(source netip.Prefix, bound bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.open--
	if !bound {
		return
	}
	if b.sources[source]--; b.sources[source] == 0 {
		delete(b.sources, source)
	}
}

// refusalLogInterval is the minimum time between two log entries about refused connections.
const refusalLogInterval = time.Minute

// refuse records a refused connection. The caller holds b.mu.
func (b *limitedListener) refuse(source netip.Prefix) {
	b.refused++
	if now := time.Now(); now.Sub(b.lastLogged) >= refusalLogInterval {
		b.log.Warn("connections refused because of limits", slog.String("listener", b.Addr().String()),
			slog.Int("open", b.open), slog.String("latest", source.String()), slog.Int("refused", b.refused))
		b.lastLogged, b.refused = now, 0
	}
}

// contains reports whether an address is in one of the networks.
func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
