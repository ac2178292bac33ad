package network

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// meshMetric is the metric of routes into the mesh. It is higher than the metric of routes to machines on this host, so
// that those routes always take precedence.
const meshMetric = 2048

// Networks returns the sorted names of the private networks of this host's machines. It includes a machine's network
// once the machine's rules exist. Networks waits while Recover is running, and returns false if Recover has not
// succeeded yet.
func (n *Network) Networks() (sorted []string, ok bool) {
	n.recovery.RLock()
	defer n.recovery.RUnlock()
	if !n.recovered {
		return nil, false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	names := map[string]bool{}
	for _, a := range n.machines {
		if a.ipv4.IsValid() {
			names[a.spec.Network] = true
		}
	}
	return slices.Sorted(maps.Keys(names)), true
}

// MTU returns the smallest MTU of the links with default routes, or 1500 if that is smaller.
func (n *Network) MTU() int { return n.host.mtu }

// Changed returns a channel that receives a value when the result of Networks may have changed. All calls return the
// same channel.
func (n *Network) Changed() <-chan struct{} { return n.changed }

func (n *Network) noteChange() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// AdmitPeers ensures that the host has firewall rules even if it has no machines. It must be called before a peer can
// send packets through the link [Config.Mesh]. On a host without machines, the rules remain until SetRemotes is called
// with a list that does not contain any laptop connected to this worker.
func (n *Network) AdmitPeers(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.recovery.RLock()
	defer n.recovery.RUnlock()
	n.mu.Lock()
	n.entry = true // before the rules exist, so that clearUnused does not remove them
	n.mu.Unlock()
	return unavailable("prepare the host for peers", errors.Join(n.prepareHost(), n.firewall.ensure()))
}

// SetRemotes replaces the list of laptops and of machines on other workers. Remote machines and this host's machines in
// the same network may exchange packets through the link [Config.Mesh]. Laptops may connect to machines in their own
// network, but machines may not connect to laptops. Packets from a laptop that is connected to this worker are
// forwarded to other workers, and the resolver answers its queries. A remote is ignored if its network has neither a
// machine on this host nor a laptop connected to this worker. If keep is set, machines that are missing from the list
// are kept, but missing laptops are removed. SetRemotes returns CodeUnavailable if the link does not exist.
func (n *Network) SetRemotes(ctx context.Context, remotes []Remote, keep bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.recovery.RLock()
	defer n.recovery.RUnlock()
	n.mu.Lock()
	groups := n.groupsFor(remotes)
	admitted := map[netip.Addr]remoteMember{}
	if !keep {
		clear(n.remote)
	}
	clear(n.laptops)
	for _, r := range remotes {
		g, ok := groups[r.Network]
		if !ok {
			continue
		}
		admitted[r.Address] = remoteMember{g, r.Here}
		n.remote[g] = r.Network
		if r.Here {
			n.laptops[r.Address] = r.Network
		}
	}
	n.entry = len(n.laptops) > 0
	n.mu.Unlock()
	// Change the rules first, so that a remote address with a route is never accepted from another link.
	return unavailable("connect to other workers", errors.Join(n.firewall.setRemotes(admitted, keep), n.host.routeRemotes(n.cfg.Mesh, admitted, keep)))
}

// groupsFor returns the numbers of all networks that have a machine on this host, or a laptop connected to this worker.
// The caller must hold mu.
func (n *Network) groupsFor(remotes []Remote) map[string]uint32 {
	groups, taken := map[string]uint32{}, maps.Clone(n.remote)
	for _, a := range n.machines {
		groups[a.spec.Network], taken[a.group] = a.group, a.spec.Network
	}
	for _, r := range remotes {
		if _, ok := groups[r.Network]; r.Here && !ok {
			g := group(r.Network, taken)
			groups[r.Network], taken[g] = g, r.Network
		}
	}
	return groups
}

// routeRemotes routes the addresses of remotes through a link, and removes the link's routes to all other machines and
// laptops. If keep is set, it removes only routes to laptops.
func (h *host) routeRemotes(name string, remotes map[netip.Addr]remoteMember, keep bool) error {
	link, err := h.nl.LinkByName(name)
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok && len(remotes) == 0 {
		return nil
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", name, err)
	}
	routes, err := retried(func() ([]netlink.Route, error) { return h.nl.RouteList(link, netlink.FAMILY_V6) })
	if err != nil {
		return fmt.Errorf("list routes: %w", err)
	}
	present := map[netip.Addr]bool{}
	var errs []error
	for _, r := range routes {
		a, ok := routeOf(&r)
		if !ok {
			continue
		}
		if _, wanted := remotes[a]; wanted {
			present[a] = true
		} else if keep && !bourse.IsLaptopAddress(a) {
			continue
		} else if err := h.nl.RouteDel(&r); err != nil && !errors.Is(err, unix.ESRCH) {
			errs = append(errs, fmt.Errorf("remove route to %s: %w", a, err))
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(remotes), netip.Addr.Compare) { // sorted, so that a repeated error has the same text
		if present[a] {
			continue
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a), Priority: meshMetric}
		if err := h.nl.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("add route to %s: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// setDown brings a link down if it exists.
func (h *host) setDown(name string) error {
	if name == "" {
		return nil
	}
	link, err := h.nl.LinkByName(name)
	if err == nil {
		err = h.nl.LinkSetDown(link)
	}
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); err != nil && !ok && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("set link %s down: %w", name, err)
	}
	return nil
}

// routeOf returns the address of the machine or laptop to which a route leads. It returns false if the route was not
// added by routeRemotes.
func routeOf(r *netlink.Route) (netip.Addr, bool) {
	if r.Dst == nil || r.Priority != meshMetric {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	return a, ok && ones == 128 && private.Contains(a)
}
