package network

import (
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Limits on one machine's DNS queries: the sustained rate per second, and the burst.
const (
	questionsPerSecond = 1000
	questionBurst      = 1000
)

// rates limits each machine's DNS queries. Its zero value is ready to use.
type rates struct {
	mu      sync.Mutex
	buckets map[bourse.MachineID]*bucket
}

// bucket is a token bucket.
type bucket struct {
	left float64
	at   time.Time
}

// allow takes a token from the machine's bucket. It returns false if the bucket is empty.
func (r *rates) allow(id bourse.MachineID, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := r.buckets[id]
	if b == nil {
		r.trim(now)
		b = &bucket{left: questionBurst, at: now}
		if r.buckets == nil {
			r.buckets = make(map[bourse.MachineID]*bucket)
		}
		r.buckets[id] = b
	}
	return b.take(now)
}

func (b *bucket) take(now time.Time) bool {
	b.left = min(questionBurst, b.left+max(0, now.Sub(b.at).Seconds())*questionsPerSecond)
	b.at = now
	if b.left < 1 {
		return false
	}
	b.left--
	return true
}

// trim removes the buckets that have become full again. To save time, it checks them only when
// their number is one less than a multiple of 256.
func (r *rates) trim(now time.Time) {
	if len(r.buckets)%256 != 255 {
		return
	}
	for id, b := range r.buckets {
		if now.Sub(b.at) > questionBurst/questionsPerSecond*time.Second {
			delete(r.buckets, id)
		}
	}
}

// Maximum number of connections to the resolver, per machine and in total.
const (
	maxConnections      = 8
	maxConnectionsTotal = 512
)

// limitedListener is a listener that immediately closes connections beyond the limits. The limit per
// machine prevents a single machine from using up the total.
type limitedListener struct {
	net.Listener
	mu   sync.Mutex
	from map[netip.Addr]int
	all  int
}

func limit(l net.Listener) *limitedListener {
	return &limitedListener{Listener: l, from: make(map[netip.Addr]int)}
}

// Accept returns the next connection that is within the limits. It closes connections that exceed
// them.
func (l *limitedListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		from, _ := remote(c.RemoteAddr())
		if l.enter(from) {
			return &limitedConn{Conn: c, leave: sync.OnceFunc(func() { l.leave(from) })}, nil
		}
		_ = c.Close() // ignore the error, because nothing was written
	}
}

func (l *limitedListener) enter(from netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.from[from] >= maxConnections || l.all >= maxConnectionsTotal {
		return false
	}
	l.from[from]++
	l.all++
	return true
}

func (l *limitedListener) leave(from netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.from[from]--; l.from[from] == 0 {
		delete(l.from, from)
	}
}

type limitedConn struct {
	net.Conn
	leave func()
}

// Close closes the connection and frees its slot.
func (c *limitedConn) Close() error {
	c.leave()
	return c.Conn.Close()
}
