package test

import (
	"bytes"
	"context"
	wire "encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// lan is an Ethernet network of hosts. Each host is a network namespace with a TAP device.
// This process is the switch, which forwards each frame that the rule permits.
type lan struct {
	t    *testing.T
	rule atomic.Pointer[rule]

	mu    sync.Mutex
	hosts []*host
	at    map[mac]*host // host that uses an address, learned from the frames that it sends
}

// rule reports whether a frame may be forwarded. It must be safe for concurrent use.
type rule func(from, to *host, frame []byte) bool

type mac [6]byte

// host is a host on the lan.
type host struct {
	*enclave
	addr netip.Addr
	side int // side of the cable that cut interrupts
	card *os.File
}

func newLAN(t *testing.T) *lan {
	l := &lan{t: t, at: map[mac]*host{}}
	l.heal()
	return l
}

func (l *lan) set(r rule) { l.rule.Store(&r) }

// heal permits all frames.
func (l *lan) heal() { l.set(func(_, _ *host, _ []byte) bool { return true }) }

// cut drops frames between hosts on different sides.
func (l *lan) cut() { l.set(func(from, to *host, _ []byte) bool { return from.side == to.side }) }

// host adds a host on a side. Its address need not be unique on this machine, because no
// other network sees it.
func (l *lan) host(side int) *host {
	l.t.Helper()
	h := &host{
		enclave: newEnclave(l.t, unix.CLONE_NEWNET), side: side,
		addr: netip.AddrFrom4([4]byte{10, 77, byte(side), byte(len(l.hosts) + 1)}),
	}
	if err := h.do(h.plug); errors.Is(err, fs.ErrNotExist) {
		l.t.Skipf("this process cannot create network devices: %v", err)
	} else if err != nil {
		l.t.Fatalf("network of %s: %v", h.addr, err)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	l.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { l.serve(h) })
	l.t.Cleanup(func() { _ = h.card.Close(); wg.Wait() })
	return h
}

// plug creates and configures the TAP device of the host's namespace.
func (h *host) plug() error {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/net/tun: %w", err)
	}
	card, err := unix.NewIfreq("card")
	if err != nil {
		return err
	}
	card.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, card); err != nil {
		return errors.Join(fmt.Errorf("create the device: %w", err), unix.Close(fd))
	}
	h.card = os.NewFile(uintptr(fd), "card of "+h.addr.String())
	return errors.Join(
		configure("lo", netip.Addr{}),
		configure("card", h.addr),
	)
}

// configure activates a device. If addr is valid, it assigns the address first.
func configure(name string, addr netip.Addr) error {
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(socket) }()
	tell := func(what uint, set func(*unix.Ifreq) error) error {
		r, err := unix.NewIfreq(name)
		if err == nil {
			err = set(r)
		}
		if err == nil {
			err = unix.IoctlIfreq(socket, what, r)
		}
		if err != nil {
			return fmt.Errorf("configure %s (%#x): %w", name, what, err)
		}
		return nil
	}
	if addr.IsValid() {
		err = errors.Join(
			tell(unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(addr.AsSlice()) }),
			tell(unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr([]byte{255, 255, 0, 0}) }),
		)
	}
	return errors.Join(err, tell(unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error {
		r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
		return nil
	}))
}

// dial opens a connection from the host.
func (h *host) dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	err = h.do(func() error {
		c, err = new(net.Dialer).DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// serve reads frames from a host's device and forwards them, until the device is closed.
func (l *lan) serve(h *host) {
	buf := make([]byte, 64<<10)
	for {
		n, err := h.card.Read(buf)
		if err != nil {
			return
		}
		if n < 14 {
			continue
		}
		frame := buf[:n]
		r := *l.rule.Load()
		for _, to := range l.receivers(h, frame) {
			if r(h, to, frame) {
				_, _ = to.card.Write(frame) // undeliverable frames are lost, as on a real network
			}
		}
	}
}

// receivers returns the host to which a frame is addressed. If that host is unknown, it
// returns all other hosts.
func (l *lan) receivers(from *host, frame []byte) []*host {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.at[mac(frame[6:12])] = from
	if to := l.at[mac(frame[:6])]; to != nil {
		return []*host{to}
	}
	var all []*host
	for _, h := range l.hosts {
		if h != from {
			all = append(all, h)
		}
	}
	return all
}

// segment is a TCP segment.
type segment struct {
	from, to netip.AddrPort
	data     []byte
}

// segmentIn parses the TCP segment in a frame. It returns false if there is none.
func segmentIn(frame []byte) (segment, bool) {
	if len(frame) < 34 || wire.BigEndian.Uint16(frame[12:]) != 0x0800 || frame[14+9] != unix.IPPROTO_TCP {
		return segment{}, false
	}
	ip := frame[14:]
	header, total := int(ip[0]&15)*4, int(wire.BigEndian.Uint16(ip[2:]))
	if total > len(ip) || header+20 > total {
		return segment{}, false
	}
	tcp := ip[header:total]
	addr := func(at int, port []byte) netip.AddrPort {
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(ip[at:at+4])), wire.BigEndian.Uint16(port))
	}
	s := segment{from: addr(12, tcp), to: addr(16, tcp[2:])}
	if offset := int(tcp[12]>>4) * 4; offset <= len(tcp) {
		s.data = tcp[offset:]
	}
	return s, true
}

// deaf returns a rule that makes a request's connection lose all replies: once a segment
// with the request has passed from one side to the other, segments in the opposite
// direction are dropped. The channel receives a value for each such connection.
func deaf(request []byte) (rule, <-chan struct{}) {
	var mu sync.Mutex
	conns := map[[2]netip.AddrPort]bool{}
	passed := make(chan struct{}, 64)
	return func(from, to *host, frame []byte) bool {
		s, ok := segmentIn(frame)
		if !ok || from.side == to.side {
			return true
		}
		mu.Lock()
		defer mu.Unlock()
		if conns[[2]netip.AddrPort{s.to, s.from}] {
			return false
		}
		if key := [2]netip.AddrPort{s.from, s.to}; bytes.Contains(s.data, request) && !conns[key] {
			conns[key] = true
			passed <- struct{}{}
		}
		return true
	}, passed
}
