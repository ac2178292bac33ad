package network

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// host manages a Network's kernel objects, except the firewall. After a crash at any step, every method can be
// repeated.
type host struct {
	mark  mark
	files files
	mtu   int
	nl    *netlink.Handle    // handle for the daemon's namespace
	fault func(point string) // called at each step, so that crash tests can kill the process there
}

func openHost(cfg Config) (*host, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return nil, err
	}
	h := &host{mark: markOf(dir), files: files(filepath.Join(dir, "ns")), fault: cfg.fault}
	if h.fault == nil {
		h.fault = func(string) {}
	}
	if err := os.MkdirAll(string(h.files), 0o711); err != nil {
		return nil, err
	}
	if h.nl, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if h.mtu, err = outsideMTU(h.nl); err != nil {
		h.nl.Close()
		return nil, err
	}
	return h, nil
}

// outsideMTU returns the smallest MTU of the links with default routes, or 1500 if all are larger. Machines use the
// same MTU, because larger packets are lost where ICMP is filtered.
func outsideMTU(nl *netlink.Handle) (int, error) {
	routes, err := retried(func() ([]netlink.Route, error) { return nl.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		return 0, fmt.Errorf("list routes: %w", err)
	}
	smallest := 1500
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() || r.LinkIndex == 0 {
			continue
		}
		// IPv6 requires an MTU of at least 1280.
		if link, err := nl.LinkByIndex(r.LinkIndex); err == nil && link.Attrs().MTU >= 1280 {
			smallest = min(smallest, link.Attrs().MTU)
		}
	}
	return smallest, nil
}

// assign assigns a prepared namespace to the machine. The function admit claims an IPv4 address, stores it in a, and
// adds the machine's rules. The last step marks the link as complete. If the daemon crashes before that step, the next
// attempt recreates everything.
func (h *host) assign(a *attached, n *namespace, admit func(claim func(netip.Addr) error) error) error {
	id := a.spec.Machine
	own := alias{mark: h.mark}
	if err := h.name(n, id, a.group, own); err != nil {
		return err
	}
	h.fault("named")
	if err := h.files.bind(id, n.file); err != nil {
		return err
	}
	h.fault("bound")
	err := admit(func(ipv4 netip.Addr) error {
		return h.nl.RouteAdd(&netlink.Route{LinkIndex: n.outer.Attrs().Index, Dst: hostPrefix(ipv4), Scope: netlink.SCOPE_LINK})
	})
	if err != nil {
		return err
	}
	h.fault("ruled")
	own.ipv4, own.mac = a.ipv4, n.eth0.Attrs().HardwareAddr
	for _, address := range []netip.Addr{a.spec.address(), a.ipv4} {
		if err := addAddress(n.handle, n.eth0, address); err != nil {
			return err
		}
	}
	if err := h.addRoutes(n.outer, a.spec, own); err != nil {
		return err
	}
	if err := awaitAddress(n.handle, a.spec.address()); err != nil {
		return err
	}
	h.fault("addressed")
	if err := h.nl.LinkSetAlias(n.outer, own.String()); err != nil {
		return fmt.Errorf("finish link: %w", err)
	}
	h.fault("finished")
	return nil
}

// name sets a link's alias, interface group and name. The alias identifies the link's owner, and the name is derived
// from the machine's id.
func (h *host) name(n *namespace, id bourse.MachineID, group uint32, own alias) error {
	if err := h.nl.LinkSetAlias(n.outer, own.String()); err != nil {
		return fmt.Errorf("mark link: %w", err)
	}
	if err := h.nl.LinkSetGroup(n.outer, int(group)); err != nil {
		return fmt.Errorf("set link group: %w", err)
	}
	err := h.nl.LinkSetName(n.outer, linkName(id))
	if errors.Is(err, unix.EBUSY) {
		// Before Linux 6.2 a link cannot be renamed while it is up.
		err = errors.Join(h.nl.LinkSetDown(n.outer), h.nl.LinkSetName(n.outer, linkName(id)), h.nl.LinkSetUp(n.outer), n.awaitCarrier(h.nl))
	}
	if err != nil {
		return fmt.Errorf("name link %s: %w", linkName(id), err)
	}
	return nil
}

// addRoutes adds the host's routes to a machine.
func (h *host) addRoutes(link netlink.Link, spec Spec, own alias) error {
	for _, a := range []netip.Addr{spec.address(), own.ipv4} {
		if err := permanent(h.nl, link, a.AsSlice(), own.mac); err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a)}
		if a.Is4() {
			route.Scope = netlink.SCOPE_LINK
		}
		if err := h.nl.RouteReplace(route); err != nil {
			return fmt.Errorf("add route to %s: %w", a, err)
		}
	}
	return nil
}

// isComplete reports whether a machine has everything that Attach creates, except the rules.
func (h *host) isComplete(id bourse.MachineID) (alias, bool) {
	link, err := h.nl.LinkByName(linkName(id))
	if err != nil {
		return alias{}, false
	}
	return h.isFinished(link, id)
}

// isFinished reports whether Attach has completed all of its steps for a machine: its link is marked as complete, and
// its namespace is bound to the machine's path. link is nil if the machine has no link.
func (h *host) isFinished(link netlink.Link, id bourse.MachineID) (alias, bool) {
	if link == nil {
		return alias{}, false
	}
	own, ok := h.ownAlias(link)
	if !ok || !own.ipv4.IsValid() {
		return alias{}, false
	}
	file, err := h.files.open(id)
	if err != nil {
		return alias{}, false
	}
	return own, file.Close() == nil
}

// reconnect brings a machine's link up, and restores the host's routes to the machine. The machine's network must be
// complete.
func (h *host) reconnect(link netlink.Link, spec Spec, own alias) error {
	if err := h.nl.LinkSetUp(link); err != nil {
		return fmt.Errorf("set link up: %w", err)
	}
	return h.addRoutes(link, spec, own)
}

// ownAlias parses a link's alias, and reports whether the link belongs to this worker.
func (h *host) ownAlias(link netlink.Link) (alias, bool) {
	own, ok := parseAlias(link.Attrs().Alias)
	return own, ok && own.mark == h.mark
}

// remove removes a machine's link and the path to which its namespace is bound.
func (h *host) remove(id bourse.MachineID) error {
	if err := h.unlink(id); err != nil {
		return err
	}
	return h.files.remove(id)
}

// unlink removes both ends of a machine's link, which also removes its routes. It does not touch links that belong to
// other workers.
func (h *host) unlink(id bourse.MachineID) error {
	link, err := h.nl.LinkByName(linkName(id))
	if err == nil {
		if _, ok := h.ownAlias(link); ok {
			err = h.nl.LinkDel(link)
		}
	}
	if _, ok := errors.AsType[netlink.LinkNotFoundError](err); ok || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove link %s: %w", linkName(id), err)
	}
	return nil
}

// links returns the links of this worker's machines.
func (h *host) links() (map[bourse.MachineID]netlink.Link, error) {
	all, err := retried(h.nl.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list links: %w", err)
	}
	found := make(map[bourse.MachineID]netlink.Link)
	for _, link := range all {
		if _, ok := h.ownAlias(link); !ok {
			continue
		}
		if id, ok := machineOf(link.Attrs().Name); ok {
			found[id] = link
		}
	}
	return found, nil
}

// prepareHost prepares the host for its first machine: it enables forwarding and adds the resolver's address.
func (h *host) prepareHost() error {
	if err := forward(); err != nil {
		return fmt.Errorf("enable packet forwarding: %w", err)
	}
	lo, err := h.nl.LinkByName("lo")
	if err != nil {
		return err
	}
	if err := h.nl.LinkSetUp(lo); err != nil {
		return err
	}
	if err := addAddress(h.nl, lo, h.mark.resolver()); err != nil {
		return err
	}
	return awaitAddress(h.nl, h.mark.resolver())
}

// removeResolver removes the resolver's address.
func (h *host) removeResolver() error {
	lo, err := h.nl.LinkByName("lo")
	if err != nil {
		return err
	}
	err = h.nl.AddrDel(lo, &netlink.Addr{IPNet: hostPrefix(h.mark.resolver())})
	if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
		return err
	}
	return nil
}
