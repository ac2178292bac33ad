package network

import (
	"net/netip"

	"github.com/bourse-dev/bourse"
)

// Spec is a machine that is to have a network, and which one.
type Spec struct {
	Machine bourse.MachineID `json:"machine"` // required
	App     bourse.AppName   `json:"app"`     // required
	Network string           `json:"network"` // required: the private network's name, App.PrivateNetwork
}

// Validate reports CodeInvalid for what cannot be attached.
func (s Spec) Validate() error {
	if err := s.Machine.Validate(); err != nil {
		return err
	}
	if err := s.App.Validate(); err != nil {
		return err
	}
	if s.Network == "" {
		return bourse.Errorf(bourse.CodeInvalid, "machine %s: it has no private network", s.Machine)
	}
	return nil
}

// address is the machine's in its private network.
func (s Spec) address() netip.Addr { return bourse.PrivateAddress(s.Network, s.Machine) }

// Attachment is what a machine's processes need to know of their network.
type Attachment struct {
	Namespace string     // path of the network namespace
	Address   netip.Addr // bourse.PrivateAddress of the machine
	IPv4      netip.Addr // for connections to the outside; means nothing beyond the host
	Resolver  []string   // name servers, for resolv.conf
	Hosts     []string   // lines of /etc/hosts besides localhost's
}

// ResolverAddress is where machines find their resolver. Every worker has it
// for its own machines, and none has it for others.
var ResolverAddress = netip.MustParseAddr("fdaa::3")

// attachment puts together what follows from a spec, the namespace's path and
// the address that was chosen.
func (s Spec) attachment(namespace string, ipv4 netip.Addr) Attachment {
	address := s.address()
	return Attachment{
		Namespace: namespace,
		Address:   address,
		IPv4:      ipv4,
		Resolver:  []string{ResolverAddress.String()},
		Hosts:     []string{address.String() + " fly-local-6pn", address.String() + " " + string(s.Machine)},
	}
}
