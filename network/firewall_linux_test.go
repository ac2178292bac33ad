package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// isRejection reports whether err means that the firewall has rejected a connection.
func isRejection(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

func TestOtherNetworkIsRejected(t *testing.T) {
	newOutside(t) // packets to private addresses that are not on this host would go there
	w := newWorker(t, nil)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "evil", "two/"))
	a.listen(t, "[::]:8080")
	for _, address := range []netip.Addr{a.Address, a.IPv4, bourse.PrivateAddress("two/", "00000900000009")} {
		began := time.Now()
		got, err := b.greeting(at(address, 8080))
		if !isRejection(err) {
			t.Errorf("%s: %q, %v; want a rejection", address, got, err)
		}
		if took := time.Since(began); took > 900*time.Millisecond {
			t.Errorf("%s: rejected after %s, want at once", address, took)
		}
	}
}

func TestSpoofedSourceIsDropped(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	a, b, c := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/")), w.attach(t, machine(3, "evil", "two/"))
	for _, to := range []struct {
		ns       *os.File
		at, from string
	}{
		{b.ns, at(b.Address, 5000), a.Address.String()},
		{remote.ns, "203.0.113.2:5000", a.IPv4.String()},
	} {
		in, err := inNamespace(to.ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", to.at) })
		if err != nil {
			t.Fatal(err)
		}
		c.add(t, to.from) // root in the machine could do the same
		sendIn(t, c.ns, to.from, to.at, "false")
		sendIn(t, a.ns, to.from, to.at, "true")
		got := make([]byte, 16)
		if err := in.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := in.ReadFrom(got)
		if string(got[:n]) != "true" || err != nil {
			t.Errorf("%s: the first packet from %s is %q, %v; want the true one's", to.at, to.from, got[:n], err)
		}
		_ = in.Close()
	}
}

// sendIn sends a packet from inside a namespace.
func sendIn(t *testing.T, ns *os.File, from, to, text string) {
	t.Helper()
	_, err := inNamespace(ns, func() (struct{}, error) {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := d.Dial("udp", to)
		if err != nil {
			return struct{}{}, err
		}
		_, err = c.Write([]byte(text))
		return struct{}{}, errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// add adds an address to the machine.
func (i *inhabitant) add(t *testing.T, address string) {
	t.Helper()
	_, err := inNamespace(i.ns, func() (struct{}, error) {
		nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return struct{}{}, err
		}
		defer nl.Close()
		link, err := nl.LinkByName(innerLink)
		if err != nil {
			return struct{}{}, err
		}
		a := netip.MustParseAddr(address)
		return struct{}{}, errors.Join(addAddress(nl, link, a), awaitAddress(nl, a))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOutbound(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	listenIn(t, remote.ns, "[::]:80", "remote")
	for to, seen := range map[string]string{"203.0.113.2:80": "203.0.113.1", "[2001:db8::2]:80": "2001:db8::1"} {
		if got, err := a.greeting(to); err != nil || got != "remote sees "+seen {
			t.Errorf("%s: %q, %v; want it to see %s", to, got, err, seen)
		}
	}
	// Addresses that serve a cloud's credentials do not count as outside.
	if got, err := a.greeting("169.254.169.254:80"); !isRejection(err) {
		t.Errorf("169.254.169.254: %q, %v; want a rejection", got, err)
	}
}

func TestInboundIsBlocked(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	a.listen(t, "[::]:8080")
	_, err := inNamespace(remote.ns, func() (struct{}, error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errors.Join(
			netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a.Address), Gw: net.ParseIP("2001:db8::1")}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a.IPv4), Gw: net.ParseIP("203.0.113.1")}))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []netip.Addr{a.Address, a.IPv4} {
		if c, err := dialIn(remote.ns, at(address, 8080)); err == nil {
			_ = c.Close()
			t.Errorf("from outside to %s: connected", address)
		} else if !isRejection(err) {
			t.Errorf("from outside to %s: %v, want a rejection", address, err)
		}
	}
}

func TestHostIsClosed(t *testing.T) {
	newOutside(t)
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	home, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = home.Close() }()
	listenIn(t, home, "[::]:4280", "host")
	for _, to := range []string{"203.0.113.1:4280", "[2001:db8::1]:4280", at(w.host.mark.resolver(), 4280)} {
		if got, err := a.greeting(to); !isRejection(err) {
			t.Errorf("%s: %q, %v; want a rejection", to, got, err)
		}
	}
	if err := a.ping("2001:db8::1"); err != nil {
		t.Errorf("ping the host: %v", err)
	}
}

// ping sends one echo request and waits for the reply, as any user may.
func (i *inhabitant) ping(to string) error {
	_, err := inNamespace(i.ns, func() (struct{}, error) {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = unix.Close(fd) }()
		limit := unix.Timeval{Sec: 2}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return struct{}{}, err
		}
		request := []byte{128, 0, 0, 0, 0, 0, 0, 1}
		if err := unix.Sendto(fd, request, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(to).As16()}); err != nil {
			return struct{}{}, err
		}
		reply := make([]byte, 64)
		n, _, err := unix.Recvfrom(fd, reply, 0)
		if err == nil && (n == 0 || reply[0] != 129) {
			err = fmt.Errorf("reply %v", reply[:n])
		}
		return struct{}{}, err
	})
	return err
}
