package bourse

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"strconv"
)

// PrivateAddress returns a machine's address in the private network of its app:
// fdaa, 32 bits of the network, 32 of the host, 32 of the machine, and 2. It
// says the same everywhere, so no one has to be asked.
func PrivateAddress(network string, id MachineID) netip.Addr {
	if id.Validate() != nil {
		return netip.Addr{}
	}
	chance, err := strconv.ParseUint(string(id[6:]), 16, 32)
	if err != nil {
		return netip.Addr{}
	}
	b := NetworkPrefix(network).Addr().As16()
	binary.BigEndian.PutUint32(b[6:], uint32(id.Tag()))
	binary.BigEndian.PutUint32(b[10:], uint32(chance))
	b[15] = 2
	return netip.AddrFrom16(b)
}

// NetworkPrefix returns the addresses of a private network, a /48.
func NetworkPrefix(network string) netip.Prefix {
	sum := sha256.Sum256([]byte(network))
	b := [16]byte{0: 0xfd, 1: 0xaa}
	copy(b[2:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(b), 48)
}

// PrivateNetwork names the network that an app's machines are in: one of its
// organisation's, so that no one joins another's by its name.
func (a *App) PrivateNetwork() string { return a.Org + "/" + a.Network }
