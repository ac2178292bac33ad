package nats

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/netip"
	"strconv"
)

// Address is a server's address on NATS. It is a random address in fd6e:6174:7300::/40, a private IPv6 range that
// spells "nats". No IP packets are ever sent to it.
type Address = netip.Addr

var network = netip.MustParsePrefix("fd6e:6174:7300::/40")

// IsAddress reports whether the host in host:port is an address on NATS, which cannot be
// dialed over IP.
func IsAddress(hostport string) bool {
	_, _, ok := parseHostPort(hostport)
	return ok
}

// Ports of an address.
const (
	PortAPI    = 1 // the server's API
	PortGossip = 2 // the server's membership
)

func newAddress() Address {
	b := network.Addr().As16()
	_, _ = rand.Read(b[network.Bits()/8:]) // never fails
	return netip.AddrFrom16(b)
}

// token encodes an address as one token of a NATS subject.
func token(a Address) string {
	b := a.As16()
	return hex.EncodeToString(b[:])
}

// parseHostPort parses a host:port on this network.
func parseHostPort(hostport string) (a Address, port uint16, ok bool) {
	p, err := netip.ParseAddrPort(hostport)
	return p.Addr(), p.Port(), err == nil && network.Contains(p.Addr())
}

func hostPort(a Address, port uint16) string {
	return net.JoinHostPort(a.String(), strconv.Itoa(int(port)))
}

// tcpAddr returns an address in the form used by net.Conn and memberlist.
func tcpAddr(a Address, port uint16) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, port))
}
