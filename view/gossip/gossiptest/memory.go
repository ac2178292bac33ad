package gossiptest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// Memory is an in-memory Network for tests. Each member has an End, which can be killed or
// partitioned from other ends. Packets are dropped and delayed pseudo-randomly, as determined by a
// seed. Calls (see Caller) are also delayed, but fail only if one of the two ends is killed or if
// the ends are partitioned.
type Memory struct {
	mu    sync.Mutex
	ends  map[string]*End
	apis  map[string]*End
	cut   func(from, to int) bool // reports whether traffic between two ends is blocked; nil if none is
	lost  func() bool             // reports whether to lose a packet; nil if none is lost
	delay func() time.Duration    // returns the delay in one direction; nil if there is none
	dice  *rand.Rand

	packets, bytes uint64
}

// NewMemory returns a network that does not lose or delay packets. The seed may be zero.
func NewMemory(seed uint64) *Memory {
	return &Memory{ends: map[string]*End{}, apis: map[string]*End{}, dice: rand.New(rand.NewPCG(seed, 1))}
}

// End is one member's endpoint in a Memory network. It implements memberlist.Transport.
type End struct {
	net     *Memory
	number  int
	ip      net.IP
	dead    bool
	packets chan *memberlist.Packet
	streams chan net.Conn
	api     api
}

var _ memberlist.Transport = (*End)(nil)

const memoryPort = 7946

// End returns a new end with this number. It kills any earlier end with the same number.
func (n *Memory) End(number int) *End {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := &End{
		net: n, number: number, ip: net.IPv4(10, 0, byte(number>>8), byte(number)).To4(),
		packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn, 256),
	}
	if old := n.ends[e.Addr()]; old != nil {
		old.dead = true
	}
	n.ends[e.Addr()], n.apis[e.API()] = e, e
	return e
}

// Partition blocks traffic between each pair of ends for which cut returns true. If cut is nil, all
// ends can reach each other again.
func (n *Memory) Partition(cut func(from, to int) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

// Lose makes the network drop a fraction of all packets, from 0 to 1.
func (n *Memory) Lose(part float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = func() bool { return n.dice.Float64() < part }
}

// Delay makes the network delay each packet by a random duration between mean-spread and
// mean+spread.
func (n *Memory) Delay(mean, spread time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = func() time.Duration { return mean - spread + time.Duration(n.dice.Int64N(int64(2*spread)+1)) }
}

// Sent returns the number of packets that were sent, and their total size in bytes.
func (n *Memory) Sent() (packets, bytes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.packets, n.bytes
}

// Kill stops an end permanently. From then on, it does not send or receive anything.
func (e *End) Kill() {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.dead = true
}

// Addr returns the end's gossip address.
func (e *End) Addr() string { return fmt.Sprintf("%s:%d", e.ip, memoryPort) }

// API returns the address at which a MemoryCaller reaches the end.
func (e *End) API() string { return fmt.Sprintf("%s:%d", e.ip, 4280) }

// reaches reports whether e can currently send to another end. The caller holds the lock.
func (e *End) reaches(to *End) bool {
	return to != nil && !to.dead && !e.dead && (e.net.cut == nil || !e.net.cut(e.number, to.number))
}

// late returns the delay for one packet. The caller holds the lock.
func (n *Memory) late() time.Duration {
	if n.delay == nil {
		return 0
	}
	return max(0, n.delay())
}

// FinalAdvertiseAddr implements memberlist.Transport.
func (e *End) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return e.ip, memoryPort, nil }

// WriteTo implements memberlist.Transport.
func (e *End) WriteTo(b []byte, addr string) (time.Time, error) {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	if e.dead {
		return now, nil
	}
	n.packets++
	n.bytes += uint64(len(b))
	to := n.ends[addr]
	if !e.reaches(to) || n.lost != nil && n.lost() {
		return now, nil
	}
	p := &memberlist.Packet{Buf: append([]byte(nil), b...), From: &net.UDPAddr{IP: e.ip, Port: memoryPort}}
	if late := n.late(); late > 0 {
		time.AfterFunc(late, func() { to.deliver(p) })
		return now, nil
	}
	to.put(p)
	return now, nil
}

func (e *End) deliver(p *memberlist.Packet) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if !e.dead {
		e.put(p)
	}
}

// put delivers a packet. The caller holds the lock.
func (e *End) put(p *memberlist.Packet) {
	p.Timestamp = time.Now()
	select {
	case e.packets <- p:
	default: // drop the packet, as a network would
	}
}

// DialTimeout implements memberlist.Transport.
func (e *End) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	n := e.net
	n.mu.Lock()
	defer n.mu.Unlock()
	to := n.ends[addr]
	if !e.reaches(to) {
		return nil, errors.New("connection refused")
	}
	here, there := net.Pipe()
	select {
	case to.streams <- there:
		return here, nil
	default:
		return nil, errors.New("backlog is full")
	}
}

// PacketCh implements memberlist.Transport.
func (e *End) PacketCh() <-chan *memberlist.Packet { return e.packets }

// StreamCh implements memberlist.Transport.
func (e *End) StreamCh() <-chan net.Conn { return e.streams }

// Shutdown implements memberlist.Transport.
func (e *End) Shutdown() error {
	e.Kill()
	return nil
}
