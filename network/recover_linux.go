package network

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"

	"github.com/bourse-dev/bourse"
)

// Recover ensures that the machines in keep have complete networks, whatever an earlier daemon or the operator has
// done, and removes all other machines' networks. It must be called once at startup, before any other method, and may
// be called again. A machine with a complete network keeps its namespace, link, addresses and connections; an
// incomplete network is completed. If keep is empty, only the forwarding setting remains on the host.
func (n *Network) Recover(ctx context.Context, keep []Spec) error {
	n.recovery.Lock()
	defer n.recovery.Unlock()
	wanted := make(map[bourse.MachineID]Spec, len(keep))
	for _, spec := range keep {
		if err := spec.Validate(); err != nil {
			return err
		}
		wanted[spec.Machine] = spec
	}
	links, err := n.host.links()
	if err != nil {
		return unavailable("recover", err)
	}
	if err := n.removeOthers(wanted, links); err != nil {
		return unavailable("recover", err)
	}
	if len(wanted) == 0 {
		err = unavailable("recover", n.clear())
	} else {
		err = n.restore(ctx, wanted, links)
	}
	if err == nil {
		n.recovered = true
		n.noteChange()
	}
	return err
}

// removeOthers removes the networks of all machines that are missing from wanted.
func (n *Network) removeOthers(wanted map[bourse.MachineID]Spec, links map[bourse.MachineID]netlink.Link) error {
	bound, err := n.host.files.list()
	if err != nil {
		return err
	}
	others := make(map[bourse.MachineID]bool)
	for id := range links {
		others[id] = true
	}
	for _, id := range bound {
		others[id] = true
	}
	for id := range n.machines { // no other call uses the map now
		others[id] = true
	}
	var errs []error
	for id := range others {
		if _, ok := wanted[id]; !ok {
			errs = append(errs, n.host.remove(id))
			n.drop(id)
		}
	}
	return errors.Join(errs...)
}

// restore restores all missing parts of the machines' networks. It restores the rules first, because until then,
// running machines have unrestricted access.
func (n *Network) restore(ctx context.Context, wanted map[bourse.MachineID]Spec, links map[bourse.MachineID]netlink.Link) error {
	if err := n.prepareHost(); err != nil {
		return unavailable("recover", err)
	}
	ids := slices.Sorted(maps.Keys(wanted))
	complete, err := n.adopt(ids, wanted, links)
	if err != nil {
		return unavailable("recover", err)
	}
	var members []member
	networks := map[uint32]string{}
	for id := range complete {
		a, _ := n.find(id)
		members, networks[a.group] = append(members, a.member()), a.spec.Network
	}
	n.mu.Lock()
	maps.Copy(n.remote, networks) // the rules may contain remote machines and laptops in these networks
	n.mu.Unlock()
	err = n.firewall.replace(members, func(group uint32, address netip.Addr) bool {
		name, ok := networks[group] // an earlier daemon may have assigned the number to another network
		return ok && bourse.NetworkPrefix(name).Contains(address)
	})
	if err != nil {
		return unavailable("recover", err)
	}
	var errs []error
	for _, id := range ids {
		if err := ctx.Err(); err != nil {
			return errors.Join(append(errs, err)...)
		}
		if own, ok := complete[id]; ok {
			errs = append(errs, n.host.reconnect(links[id], wanted[id], own))
			continue
		}
		a, err := n.reserve(wanted[id])
		if err == nil {
			err = n.equip(a)
		}
		errs = append(errs, err)
	}
	return unavailable("recover", errors.Join(errs...))
}

// adopt records the machines with complete networks and returns their links' aliases. It must be called before any
// other machine gets an address, so that no address is assigned twice.
func (n *Network) adopt(ids []bourse.MachineID, wanted map[bourse.MachineID]Spec, links map[bourse.MachineID]netlink.Link) (map[bourse.MachineID]alias, error) {
	complete := make(map[bourse.MachineID]alias, len(ids))
	for _, id := range ids {
		own, ok := n.host.isFinished(links[id], id)
		if !ok {
			continue
		}
		a, err := n.reserve(wanted[id])
		if err != nil {
			return nil, err
		}
		if links[id].Attrs().Group != a.group {
			if err := n.host.nl.LinkSetGroup(links[id], int(a.group)); err != nil {
				return nil, err
			}
		}
		a.ipv4 = own.ipv4
		n.settle(a)
		complete[id] = own
	}
	return complete, nil
}

// clear removes the rules and the resolver's address from the host. It first brings the mesh's link down, because
// without the rules, peers would have unrestricted access to the host. The mesh brings the link up again when
// necessary.
func (n *Network) clear() error {
	if err := n.host.setDown(n.cfg.Mesh); err != nil {
		return err
	}
	n.mu.Lock()
	n.prepared = false
	n.mu.Unlock()
	return errors.Join(n.firewall.delete(), n.host.removeResolver())
}
