package gossip_test

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// memNet is a network in memory, in which ends die and are cut off from one
// another.
type memNet struct {
	mu   sync.Mutex
	ends map[string]*memEnd
	cut  func(from, to int) bool // nil: everybody reaches everybody
	lost func() bool             // of one packet; nil: none is
}

func newMemNet() *memNet { return &memNet{ends: map[string]*memEnd{}} }

// memEnd is one member's transport.
type memEnd struct {
	net     *memNet
	number  int
	ip      net.IP
	dead    bool
	packets chan *memberlist.Packet
	streams chan net.Conn
}

var _ memberlist.Transport = (*memEnd)(nil)

const memPort = 7946

func (n *memNet) end(number int) *memEnd {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := &memEnd{
		net: n, number: number, ip: net.IPv4(10, 0, byte(number>>8), byte(number)).To4(),
		packets: make(chan *memberlist.Packet, 4096), streams: make(chan net.Conn, 256),
	}
	n.ends[e.addr()] = e
	return e
}

func (n *memNet) partition(cut func(from, to int) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = cut
}

func (n *memNet) lose(lost func() bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lost = lost
}

// kill makes an end deaf and dumb for ever.
func (e *memEnd) kill() {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	e.dead = true
}

func (e *memEnd) addr() string { return fmt.Sprintf("%s:%d", e.ip, memPort) }

// peer gives the other end, unless it cannot be reached.
func (e *memEnd) peer(addr string) *memEnd {
	to := e.net.ends[addr]
	if to == nil || to.dead || e.dead || (e.net.cut != nil && e.net.cut(e.number, to.number)) {
		return nil
	}
	return to
}

func (e *memEnd) FinalAdvertiseAddr(string, int) (net.IP, int, error) { return e.ip, memPort, nil }

func (e *memEnd) WriteTo(b []byte, addr string) (time.Time, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	if to := e.peer(addr); to != nil && (e.net.lost == nil || !e.net.lost()) {
		select {
		case to.packets <- &memberlist.Packet{Buf: append([]byte(nil), b...), From: &net.UDPAddr{IP: e.ip, Port: memPort}, Timestamp: time.Now()}:
		default: // lost, as packets are
		}
	}
	return time.Now(), nil
}

func (e *memEnd) DialTimeout(addr string, _ time.Duration) (net.Conn, error) {
	e.net.mu.Lock()
	defer e.net.mu.Unlock()
	to := e.peer(addr)
	if to == nil {
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

func (e *memEnd) PacketCh() <-chan *memberlist.Packet { return e.packets }
func (e *memEnd) StreamCh() <-chan net.Conn           { return e.streams }

func (e *memEnd) Shutdown() error {
	e.kill()
	return nil
}
