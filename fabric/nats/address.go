package nats

import (
	"crypto/rand"
	"encoding/hex"
	"net"
	"net/netip"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// Address is a server's address on NATS: a random one of bourse.NATSNetwork.
type Address = netip.Addr

// The ports of an address.
const (
	PortAPI    = 1 // the server's API
	PortGossip = 2 // its membership
)

var network = bourse.NATSNetwork()

func newAddress() Address {
	b := network.Addr().As16()
	_, _ = rand.Read(b[network.Bits()/8:]) // never fails
	return netip.AddrFrom16(b)
}

// token writes an address as a token of a subject.
func token(a Address) string {
	b := a.As16()
	return hex.EncodeToString(b[:])
}

// parsePlace reads host:port of this network.
func parsePlace(hostport string) (a Address, port uint16, ok bool) {
	p, err := netip.ParseAddrPort(hostport)
	return p.Addr(), p.Port(), err == nil && network.Contains(p.Addr())
}

func place(a Address, port uint16) string {
	return net.JoinHostPort(a.String(), strconv.Itoa(int(port)))
}

// tcpAddr is an address in the form of net.Conn and memberlist.
func tcpAddr(a Address, port uint16) *net.TCPAddr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, port))
}
