package admission

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// Safeguard is something that makes an address safe to be reached from other
// hosts, as a person calls it.
type Safeguard string

// The safeguards.
const (
	TLS       Safeguard = "TLS (CA, certificate and key)"
	Tokens    Safeguard = "client tokens"
	GossipKey Safeguard = "a gossip key"
)

// Listen is an address that a server is about to listen on.
type Listen struct {
	What  string // for the error: "the API"
	Addr  netip.AddrPort
	Needs []Safeguard // to be reached from other hosts
	Has   []Safeguard
}

// CheckListen reports CodeInvalid when l would be open to other hosts without
// what it needs. Loopback needs nothing, and insecure allows everything: it is
// for test networks.
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
		"%s would be open to other hosts on %s without %s: add it, listen on loopback, or say --insecure on a network that you trust",
		l.What, l.Addr, strings.Join(missing, " and "))
}
