package edge

import (
	"errors"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

// acceptProxyHeaders returns a listener that reads PROXY headers from the load balancers in
// e.LoadBalancers. Their connections must begin with one. Connections from other addresses
// are not parsed.
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

var errNotTCP = errors.New("PROXY header does not describe a TCP connection")

// clientOf returns the client's address, which is invalid if unknown. It waits for the
// PROXY header if one is expected.
func clientOf(c net.Conn) netip.AddrPort {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	a := at.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// closeWrite closes the sending side of a connection if the connection supports that.
func closeWrite(c net.Conn) error {
	switch c := c.(type) {
	case interface{ CloseWrite() error }:
		return c.CloseWrite()
	case *proxyproto.Conn:
		return closeWrite(c.Raw())
	}
	return nil
}

// writeProxyHeader writes a PROXY header that tells the machine the client's address.
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
