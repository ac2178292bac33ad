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

// meshMetric is the metric of routes into the mesh. It is worse than that of the routes to machines on this host, so
// that the latter win in any case.
const meshMetric = 2048

// Networks returns the names of the private networks that machines on this host belong to, sorted. A machine counts once it
// has its rules. Networks waits for Recover, and returns false if Recover has not completed yet.
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

// MTU returns the smallest MTU of the links with default routes, and at most 1500.
func (n *Network) MTU() int { return n.host.mtu }

// Changed returns a channel of capacity one that contains an element if the result of Networks may have changed. It is
// always the same channel.
func (n *Network) Changed() <-chan struct{} { return n.changed }

func (n *Network) noteChange() {
	select {
	case n.changed <- struct{}{}:
	default:
	}
}

// AdmitPeers prepares the host for peers. It must be called before a peer can send packets through the link
// [Config.Mesh], because without machines, the host has no rules. They remain until SetRemotes is called without laptops
// that are connected to this worker.
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

// SetRemotes replaces the list of machines on other workers and of laptops. Machines on this host may exchange packets
// with machines in their own network, through the link [Config.Mesh]. Laptops may connect to machines in their own
// network, but not the reverse. Packets of laptops that are connected to this worker are forwarded to other workers, and
// the resolver answers their queries. Other remotes in networks without machines on this host are ignored. If keep is
// set, machines that the list lacks remain, but not laptops. SetRemotes returns CodeUnavailable if the link does not exist.
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
	// The rules come first, so that a remote address is never accepted from another link while it has a route.
	return unavailable("connect to other workers", errors.Join(n.firewall.setRemotes(admitted, keep), n.host.routeRemotes(n.cfg.Mesh, admitted, keep)))
}

// groupsFor returns the numbers of the networks of this host's machines, and of the laptops that are connected to this
// worker. The caller holds mu.
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

// routeRemotes routes exactly the given addresses through a link. If keep is set, other routes remain, except those to
// laptops.
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
	for _, a := range slices.SortedFunc(maps.Keys(remotes), netip.Addr.Compare) { // in order, so that the error is the same each time
		if present[a] {
			continue
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a), Priority: meshMetric}
		if err := h.nl.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
			errs = append(errs, fmt.Errorf("route to %s: %w", a, err))
		}
	}
	return errors.Join(errs...)
}

// setDown sets a link down if it exists.
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

// routeOf returns the machine's address to which a route leads. It returns false for routes of any other kind.
func routeOf(r *netlink.Route) (netip.Addr, bool) {
	if r.Dst == nil || r.Priority != meshMetric {
		return netip.Addr{}, false
	}
	a, ok := netip.AddrFromSlice(r.Dst.IP)
	ones, _ := r.Dst.Mask.Size()
	return a, ok && ones == 128 && private.Contains(a)
}
