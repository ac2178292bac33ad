package edge

import (
	"errors"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

// announced returns a listener on which those that e.Behind names, load balancers,
// say in a PROXY header for whom they come. They must: a connection without one is
// broken off. From anyone else such a header is what it looks like, bytes.
func (e *Edge) acceptProxyHeaders(l net.Listener) net.Listener {
	if len(e.LoadBalancers) == 0 {
		return l
	}
	return &proxyproto.Listener{
		Listener:          l,
		ReadHeaderTimeout: e.Limits.Handshake,
		ConnPolicy: func(o proxyproto.ConnPolicyOptions) (proxyproto.Policy, error) {
			at, ok := o.Upstream.(*net.TCPAddr)
			if ok && contains(e.LoadBalancers, at.AddrPort().Addr().Unmap().WithZone("")) {
				return proxyproto.REQUIRE, nil
			}
			return proxyproto.SKIP, nil
		},
		ValidateHeader: func(h *proxyproto.Header) error {
			if _, ok := h.SourceAddr.(*net.TCPAddr); !ok && !h.Command.IsLocal() && h.TransportProtocol != proxyproto.UNSPEC {
				return errNotTCP
			}
			return nil
		},
	}
}

var errNotTCP = errors.New("a PROXY header of something else than TCP")

// clientOf returns the address that a connection comes from, invalid if it has none.
// It waits for a PROXY header that is to come.
func clientOf(c net.Conn) netip.AddrPort {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	a := at.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// closeWrite ends what is sent on a connection, if that can be done alone.
func closeWrite(c net.Conn) error {
	switch c := c.(type) {
	case interface{ CloseWrite() error }:
		return c.CloseWrite()
	case *proxyproto.Conn:
		return closeWrite(c.Raw())
	}
	return nil
}

// announce writes the PROXY header with which a machine is told whose connection
// this is.
func writeProxyHeader(to net.Conn, client netip.AddrPort, local net.Addr, v2 bool) error {
	version := byte(1)
	if v2 {
		version = 2
	}
	from := net.TCPAddrFromAddrPort(client)
	h := proxyproto.HeaderProxyFromAddrs(version, from, local)
	_, err := h.WriteTo(to)
	return err
}
