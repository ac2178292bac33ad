package admission

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Safeguard is a way to protect a listener that other hosts can reach.
type Safeguard string

// The safeguards.
const (
	TLS       Safeguard = "TLS (CA, certificate and key)"
	Tokens    Safeguard = "client tokens"
	GossipKey Safeguard = "a gossip key"
)

// Listen describes an address to listen on.
type Listen struct {
	What  string // names the address in the error, for example "the API"
	Addr  netip.AddrPort
	Needs []Safeguard // the safeguards required if other hosts can reach the address
	Has   []Safeguard
}

// CheckListen checks that l has all the safeguards in l.Needs. It skips this check if l.Addr is on
// loopback, which other hosts cannot reach, or if insecure is set, for test networks. Errors:
// invalid.
func CheckListen(l Listen, insecure bool) error {
	if !l.Addr.IsValid() {
		return bourse.Errorf(bourse.CodeInvalid, "%s has no address to listen on", l.What)
	}
	if insecure || l.Addr.Addr().Unmap().IsLoopback() {
		return nil
	}
	var missing []string
	for _, need := range l.Needs {
		if !slices.Contains(l.Has, need) {
			missing = append(missing, string(need))
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid,
		"%s would be open to other hosts on %s without %s: add it, listen on loopback, or use --insecure on a network that you trust",
		l.What, l.Addr, strings.Join(missing, " and "))
}
