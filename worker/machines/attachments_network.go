package machines

import (
	"cmp"
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/network"
)

// SpecOf returns the network that a machine is to have.
func SpecOf(m *bourse.Machine) network.Spec {
	return network.Spec{Machine: m.ID, App: m.App, Network: m.Network}
}

// attachNetwork makes m's network; nil when m uses the host's.
func (f *Attachments) attachNetwork(ctx context.Context, m *bourse.Machine) (*driver.Network, error) {
	if !m.PrivateIP.IsValid() {
		return nil, nil
	}
	if f.Network == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "machine %s has an address of its own, and the worker was started without networks", m.ID)
	}
	at, err := f.Network.Attach(ctx, SpecOf(m))
	if err != nil {
		return nil, err
	}
	return namesOf(m, &driver.Network{Namespace: at.Namespace, Hosts: at.Hosts, Resolver: at.Resolver}), nil
}

func (f *Attachments) detachNetwork(ctx context.Context, m *bourse.Machine) error {
	if f.Network == nil || !m.PrivateIP.IsValid() {
		return nil
	}
	return f.Network.Detach(ctx, m.ID)
}

// namesOf adds to a machine's network what its config says of names. Without
// a name of its own the machine's is its id.
func namesOf(m *bourse.Machine, n *driver.Network) *driver.Network {
	d := cmp.Or(m.Config.DNS, &bourse.DNS{})
	n.Hostname = string(m.ID)
	if d.Hostname != "" {
		n.Hostname = d.Hostname
	}
	if len(d.Nameservers) > 0 {
		n.Resolver = d.Nameservers
	}
	n.Search = d.Searches
	for _, o := range d.Options {
		if o.Value != "" {
			o.Name += ":" + o.Value
		}
		n.Options = append(n.Options, o.Name)
	}
	n.Hosts = slices.Clone(n.Hosts)
	if d.HostnameFQDN != "" {
		n.Hosts = append(n.Hosts, m.PrivateIP.String()+"\t"+d.HostnameFQDN)
	}
	return n
}
