package edge

import (
	"errors"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

// acceptProxyHeaders wraps a listener. The returned listener reads PROXY headers. Connections from e.LoadBalancers
// must begin with a PROXY header. On connections from other addresses, a PROXY header is treated like any other data.
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

// clientOf returns the address of a connection's client. If the connection comes from a load
// balancer, clientOf waits for the PROXY header. It returns an invalid address if the client is
// unknown.
func clientOf(c net.Conn) netip.AddrPort {
	at, ok := c.RemoteAddr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	a := at.AddrPort()
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// closeWrite closes the sending side of a connection, if the connection supports this.
func closeWrite(c net.Conn) error {
	switch c := c.(type) {
	case interface{ CloseWrite() error }:
		return c.CloseWrite()
	case *proxyproto.Conn:
		return closeWrite(c.Raw())
	}
	return nil
}

// writeProxyHeader sends a PROXY header with the client's address to a machine.
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
