package network

import (
	"encoding/binary"
	"hash/fnv"
	"iter"
	"net/netip"

	"github.com/bourse-dev/bourse"
)

// candidates returns the addresses that a machine can get, which are all addresses in the range except the first and
// the last. The sequence starts at an address derived from the machine's id, so that a machine usually gets the same
// address again, and a released address is not reused immediately.
func candidates(in netip.Prefix, id bourse.MachineID) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		if !in.Addr().Is4() || in.Bits() > 30 {
			return
		}
		base := in.Masked().Addr().As4()
		first := binary.BigEndian.Uint32(base[:]) + 1
		count := uint64(1)<<(32-in.Bits()) - 2
		h := fnv.New64a()
		_, _ = h.Write([]byte(id)) // never fails
		start := h.Sum64() % count
		for i := range count {
			var b [4]byte
			binary.BigEndian.PutUint32(b[:], first+uint32((start+i)%count))
			if !yield(netip.AddrFrom4(b)) {
				return
			}
		}
	}
}
