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

// mark distinguishes what one worker has on a host from what others have: eight hex
// digits of the hash of its directory.
type mark string

func markOf(dir string) mark {
	sum := sha256.Sum256([]byte(filepath.Clean(dir)))
	return mark(hex.EncodeToString(sum[:4]))
}

// table names the worker's nftables table.
func (m mark) table() string { return "bourse-" + string(m) }

// resolver is the worker's own address, on the host's loopback device:
// fdaa:0:<mark>::3. No machine has one like it, theirs end in 2.
func (m mark) resolver() netip.Addr {
	b := [16]byte{0: 0xfd, 1: 0xaa, 15: 3}
	if _, err := hex.Decode(b[4:8], []byte(m)); err != nil {
		panic("network: mark " + string(m)) // markOf made it
	}
	return netip.AddrFrom16(b)
}

// aliasWord begins the alias of every link of ours.
const aliasWord = "bourse"

// alias is what is written on a machine's link. An empty one of mine says
// whose it is; the addresses are added by the last step of Attach, so they say
// that all of it has been done.
type alias struct {
	mark mark
	ipv4 netip.Addr       // zero: unfinished
	mac  net.HardwareAddr // of the machine's end
}

func (a alias) String() string {
	if !a.ipv4.IsValid() {
		return aliasWord + " " + string(a.mark)
	}
	return strings.Join([]string{aliasWord, string(a.mark), a.ipv4.String(), a.mac.String()}, " ")
}

// parseAlias reads an alias. ok is true only for one of ours, of any
// worker; others may write anything on links.
func parseAlias(s string) (a alias, ok bool) {
	words := strings.Split(s, " ")
	if len(words) != 2 && len(words) != 4 || words[0] != aliasWord {
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

// linkName names the host's end of a machine's link: 15 characters, all that
// there may be.
func linkName(id bourse.MachineID) string { return "b" + string(id) }

// spareName is a passing name; a machine id has no "p".
func spareName() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // crypto/rand never fails
	return "bp" + hex.EncodeToString(b[:])
}

// machineOf is the other direction of linkName.
func machineOf(link string) (bourse.MachineID, bool) {
	rest, ok := strings.CutPrefix(link, "b")
	id := bourse.MachineID(rest)
	return id, ok && id.Validate() == nil
}

// group numbers a private network: links of its machines are in this group,
// and the firewall asks for it. The number begins as a hash of the name, and
// is the next one where that is another network's. The network's prefix would
// not do: its 32 bits are few enough to find another name with the same ones.
func group(network string, taken map[uint32]string) uint32 {
	sum := sha256.Sum256([]byte("group " + network))
	for g := binary.BigEndian.Uint32(sum[:]) >> 1; ; g++ {
		// 0 is every other link's; ip shows more than 31 bits as negative numbers.
		if owner, ok := taken[g]; g != 0 && (!ok || owner == network) {
			return g
		}
	}
}
