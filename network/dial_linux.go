package network

import (
	"context"
	"errors"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// Dial connects from the host to a program in a machine. It first tries the machine's private
// address. If nothing listens there, it tries the machine's IPv4 address and then the loopback
// addresses, from inside the machine's namespace. It returns CodeNotFound if the machine has no
// network on this worker, and CodeUnavailable if nothing listens on the port.
func (n *Network) Dial(ctx context.Context, id bourse.MachineID, port uint16) (net.Conn, error) {
	a, ok := n.find(id)
	if !ok {
		return nil, bourse.Errorf(bourse.CodeNotFound, "machine %s has no network on this worker", id)
	}
	// Connect from the worker's own address, so that the program can recognize the
	// worker.
	c, err := dial(ctx, n.host.mark.resolver(), a.spec.address(), port)
	if isRefused(err) {
		c, err = n.dialInside(ctx, a, port)
	}
	switch {
	case err == nil:
		return c, nil
	case isRefused(err):
		return nil, bourse.Errorf(bourse.CodeUnavailable, "machine %s: nothing listens on port %d", id, port)
	case ctx.Err() != nil:
		return nil, ctx.Err()
	}
	return nil, unavailable("connect to "+string(id), err)
}

// isRefused reports whether the machine refused the connection. The machine's other addresses are
// worth trying only in that case.
func isRefused(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

func dial(ctx context.Context, from, to netip.Addr, port uint16) (net.Conn, error) {
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(from, 0))}
	return d.DialContext(ctx, "tcp", netip.AddrPortFrom(to, port).String())
}

// dialInside connects from inside the machine's namespace. It creates the socket on a separate
// thread. It tries the machine's IPv4 address before loopback: a program may trust loopback
// connections more, because normally only the machine's own programs can open them.
func (n *Network) dialInside(ctx context.Context, a attached, port uint16) (net.Conn, error) {
	ns, err := n.host.files.open(a.spec.Machine)
	if err != nil {
		return nil, err
	}
	defer func() { _ = ns.Close() }() // ignore the error, because the file was not written to
	return inNamespace(ns, func() (c net.Conn, err error) {
		for _, address := range []netip.Addr{a.ipv4, netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
			if c, err = dial(ctx, address, address, port); !isRefused(err) {
				break
			}
		}
		return c, err
	})
}
