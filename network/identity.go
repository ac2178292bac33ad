package network

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/bourse-dev/bourse"
)

// mark distinguishes a worker's objects on a host from other workers' objects. It consists of eight hex digits from a
// hash of the worker's directory.
type mark string

func markOf(dir string) mark {
	sum := sha256.Sum256([]byte(filepath.Clean(dir)))
	return mark(hex.EncodeToString(sum[:4]))
}

// table returns the name of the worker's nftables table.
func (m mark) table() string { return "bourse-" + string(m) }

// resolver returns the worker's own address on the host's loopback device, fdaa:0:<mark>::3. It cannot be a machine's
// address, because those end in 2.
func (m mark) resolver() netip.Addr {
	b := [16]byte{0: 0xfd, 1: 0xaa, 15: 3}
	if _, err := hex.Decode(b[4:8], []byte(m)); err != nil {
		panic("network: mark " + string(m)) // markOf returns valid marks only
	}
	return netip.AddrFrom16(b)
}

// aliasPrefix is the first word of the alias of each link that this package creates.
const aliasPrefix = "bourse"

// alias is the alias of a machine's link. At first, it contains only the owner's mark. Attach adds the addresses in its
// last step, so an alias with addresses means that the network is complete.
type alias struct {
	mark mark
	ipv4 netip.Addr       // zero if the network is incomplete
	mac  net.HardwareAddr // hardware address of the machine's end of the link
}

func (a alias) String() string {
	if !a.ipv4.IsValid() {
		return aliasPrefix + " " + string(a.mark)
	}
	return strings.Join([]string{aliasPrefix, string(a.mark), a.ipv4.String(), a.mac.String()}, " ")
}

// parseAlias parses an alias that this or another worker has set. It returns false for any other alias.
func parseAlias(s string) (a alias, ok bool) {
	words := strings.Split(s, " ")
	if len(words) != 2 && len(words) != 4 || words[0] != aliasPrefix {
		return alias{}, false
	}
	a.mark = mark(words[1])
	if len(words) == 2 {
		return a, true
	}
	ipv4, err := netip.ParseAddr(words[2])
	if err != nil || !ipv4.Is4() {
		return alias{}, false
	}
	mac, err := net.ParseMAC(words[3])
	if err != nil || len(mac) != 6 {
		return alias{}, false
	}
	a.ipv4, a.mac = ipv4, mac
	return a, true
}

// linkName returns the name of the host's end of a machine's link. It has 15 characters, the maximum for a link.
func linkName(id bourse.MachineID) string { return "b" + string(id) }

// pooledName returns a temporary link name. It cannot be the name of a machine's link, because machine ids do not
// contain a "p".
func pooledName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return "bp" + hex.EncodeToString(b[:])
}

// machineOf is the inverse of linkName. It returns false if link is not the name of a machine's link.
func machineOf(link string) (bourse.MachineID, bool) {
	rest, ok := strings.CutPrefix(link, "b")
	id := bourse.MachineID(rest)
	return id, ok && id.Validate() == nil
}

// group returns a private network's number. Its machines' links are in the interface group with that number, and the
// firewall's rules match on the group. The number is a hash of the network's name or, if another network has that
// number, the next free one. The network's address prefix would not be safe as a number: because it has only 32 bits, a
// user could find another network name with the same prefix.
func group(network string, taken map[uint32]string) uint32 {
	sum := sha256.Sum256([]byte("group " + network))
	for g := binary.BigEndian.Uint32(sum[:]) >> 1; ; g++ {
		// Skip 0, which is the default group of all links. The number has only 31 bits, because the ip command would
		// display larger numbers as negative.
		if owner, ok := taken[g]; g != 0 && (!ok || owner == network) {
			return g
		}
	}
}
