package network

import (
	"net/netip"

	"github.com/bourse-dev/bourse"
)

// Spec describes a machine to attach and its private network.
type Spec struct {
	Machine bourse.MachineID `json:"machine"` // required
	App     bourse.AppName   `json:"app"`     // required
	Network string           `json:"network"` // required: the private network's name, App.PrivateNetwork
}

// Validate returns CodeInvalid if a field is missing or invalid.
func (s Spec) Validate() error {
	if err := s.Machine.Validate(); err != nil {
		return err
	}
	if err := s.App.Validate(); err != nil {
		return err
	}
	if s.Network == "" {
		return bourse.Errorf(bourse.CodeInvalid, "machine %s has no private network", s.Machine)
	}
	return nil
}

// address returns the machine's address in its private network.
func (s Spec) address() netip.Addr { return bourse.PrivateAddress(s.Network, s.Machine) }

// Attachment contains the network settings for a machine's processes.
type Attachment struct {
	Namespace string     // path of the network namespace
	Address   netip.Addr // bourse.PrivateAddress of the machine
	IPv4      netip.Addr // for connections to the outside; not reachable from other hosts
	Resolver  []string   // name servers, for resolv.conf
	Hosts     []string   // lines to add to /etc/hosts, which already contains localhost
}

// ResolverAddress is the address at which machines reach the resolver. On every worker, it leads to that worker's own
// resolver.
var ResolverAddress = netip.MustParseAddr("fdaa::3")

// attachment returns the machine's Attachment. namespace is the path of the machine's network namespace, and ipv4 is
// its IPv4 address.
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

// Remote is a machine on another worker, or a laptop. Its address (bourse.PrivateAddress or bourse.LaptopAddress) is
// derived from the network and from the machine's ID or the laptop's key.
type Remote struct {
	Network string // name of the private network
	Address netip.Addr
	Here    bool // whether it is a laptop that is connected to this worker
}
