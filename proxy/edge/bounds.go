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

// bounded is a listener with a bound on its open connections, in all and by where
// they come from. What is beyond it is closed at once: a stranger who opens many
// takes no one's place but his neighbours'.
type limitedListener struct {
	net.Listener
	limits  Limits
	clients *throttle.Fair // of all listeners; nil: there is none
	exempt  []netip.Prefix // whose connections are counted in all only
	log     *slog.Logger

	mu         sync.Mutex
	open       int
	sources    map[netip.Prefix]int // open by source, at least 1 each
	lastLogged time.Time            // when refusals were last logged
	refused    int                  // since then
}

// boundedConn is a connection that counts until it is closed. It keeps what a TCP
// connection can do.
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
		if !ok { // of a test
			return c, nil
		}
		source, bound := b.sourceOf(conn)
		if !b.acquire(source, bound) {
			_ = conn.SetLinger(0) // no state is left of it
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

// share reserves a place for a connection in the budget of the process. It returns nil
// if there is none. When the budget is used up, the oldest connection of the source
// with the most connections is closed. Load balancers' connections are never closed,
// because each may carry the requests of many clients.
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

// sourceOf returns what a connection is counted by: an address, or for IPv6 what
// one host has at least.
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

// refusalsEvery is how often refused connections are logged.
const refusalLogInterval = time.Minute

// refuse notes a refusal. b.mu is held.
func (b *limitedListener) refuse(source netip.Prefix) {
	b.refused++
	if now := time.Now(); now.Sub(b.lastLogged) >= refusalLogInterval {
		b.log.Warn("too many connections: further ones are closed", slog.String("listener", b.Addr().String()),
			slog.Int("open", b.open), slog.String("latest", source.String()), slog.Int("refused", b.refused))
		b.lastLogged, b.refused = now, 0
	}
}

// contains reports whether an address is in one of the networks.
func contains(networks []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a) })
}
