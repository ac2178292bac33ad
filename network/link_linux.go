package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Static configuration of a veth pair: the machine's gateways, whose addresses are not assigned to any device, and the
// hardware address of the host's end. Permanent neighbor entries make ARP, neighbor discovery and proxies for them
// unnecessary. Without such entries, a thousand machines would fill the host's neighbor tables.
var (
	hostMAC  = net.HardwareAddr{0x02, 'b', 'o', 'u', 'r', 's'}
	gateway6 = net.ParseIP("fe80::1")
	gateway4 = net.IPv4(169, 254, 1, 1).To4()
)

// innerLink is the name of the end of the veth pair inside the namespace.
const innerLink = "eth0"

// namespace is a network namespace that is prepared for a machine: its links are up and its default routes exist. Only
// its addresses are missing, and the host's end of the veth pair still has a temporary name. Unless the namespace is
// bound to a path, it disappears when its file is closed.
type namespace struct {
	file   *os.File
	handle *netlink.Handle
	eth0   netlink.Link
	outer  netlink.Link
}

func (n *namespace) close() {
	n.handle.Close()
	_ = n.file.Close() // ignore the error, because nothing was written
}

// awaitCarrier waits until both ends of the veth pair carry packets. The kernel drops packets for a short time after
// the ends are set up.
func (n *namespace) awaitCarrier(host *netlink.Handle) error {
	for _, end := range []struct {
		nl   *netlink.Handle
		link netlink.Link
	}{{host, n.outer}, {n.handle, n.eth0}} {
		err := poll(func() (bool, error) {
			link, err := end.nl.LinkByIndex(end.link.Attrs().Index)
			return err == nil && link.Attrs().OperState == netlink.OperUp, err
		})
		if err != nil {
			return fmt.Errorf("wait for link to come up: %w", err)
		}
	}
	return nil
}

// addAddress adds an address to a link. Packets to a new IPv6 address do not arrive immediately; see awaitAddress.
func addAddress(nl *netlink.Handle, link netlink.Link, a netip.Addr) error {
	addr := &netlink.Addr{IPNet: hostPrefix(a)}
	if a.Is6() {
		addr.Flags = unix.IFA_F_NODAD
	}
	if err := nl.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("add address %s: %w", a, err)
	}
	return nil
}

// awaitAddress waits until the kernel delivers packets to a newly added address.
func awaitAddress(nl *netlink.Handle, a netip.Addr) error {
	err := poll(func() (bool, error) {
		routes, err := nl.RouteGet(a.AsSlice())
		return len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL, err
	})
	if err != nil {
		return fmt.Errorf("wait for address %s: %w", a, err)
	}
	return nil
}

// poll calls a function repeatedly until it returns true or an error. After a time limit, poll returns an error.
// Polling is necessary because the kernel completes some requests asynchronously.
func poll(so func() (bool, error)) error {
	const limit, every = 2 * time.Second, 50 * time.Microsecond
	for began := time.Now(); ; time.Sleep(every) {
		if ok, err := so(); ok || err != nil {
			return err
		}
		if time.Since(began) > limit {
			return fmt.Errorf("timed out after %s", limit)
		}
	}
}

// prepare sets up a namespace that is new or has lost its link. It takes ownership of the file, and closes it if it
// returns an error.
func (h *host) prepare(file *os.File) (*namespace, error) {
	handle, err := netlink.NewHandleAt(netns.NsHandle(file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open netlink socket in namespace: %w", err), file.Close())
	}
	n := &namespace{file: file, handle: handle}
	if err := h.equip(n); err != nil {
		n.close()
		return nil, err
	}
	return n, nil
}

func (h *host) equip(n *namespace) error {
	if old, err := n.handle.LinkByName(innerLink); err == nil {
		if err := n.handle.LinkDel(old); err != nil {
			return fmt.Errorf("remove incomplete link: %w", err)
		}
	}
	if err := h.addLink(n); err != nil {
		return err
	}
	lo, err := n.handle.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("find lo: %w", err)
	}
	if err := errors.Join(n.handle.LinkSetUp(lo), n.handle.LinkSetUp(n.eth0), h.nl.LinkSetUp(n.outer)); err != nil {
		return fmt.Errorf("set links up: %w", err)
	}
	if err := n.awaitCarrier(h.nl); err != nil {
		return err
	}
	for _, gateway := range []net.IP{gateway6, gateway4} {
		if err := permanent(n.handle, n.eth0, gateway, hostMAC); err != nil {
			return err
		}
		route := &netlink.Route{LinkIndex: n.eth0.Attrs().Index, Gw: gateway, Flags: int(netlink.FLAG_ONLINK), Dst: defaultRoute(gateway)}
		if err := n.handle.RouteReplace(route); err != nil {
			return fmt.Errorf("add default route via %s: %w", gateway, err)
		}
	}
	return nil
}

func (h *host) addLink(n *namespace) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.HardwareAddr, attrs.MTU = pooledName(), hostMAC, h.mtu
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: innerLink, PeerNamespace: netlink.NsFd(int(n.file.Fd())), PeerMTU: uint32(h.mtu)}
	if err := h.nl.LinkAdd(pair); err != nil {
		return fmt.Errorf("add link: %w", err)
	}
	var err error
	if n.outer, err = h.nl.LinkByName(attrs.Name); err != nil {
		return fmt.Errorf("find the new link: %w", err)
	}
	// Do not give the host's end a link-local address, because the kernel would send probes and announcements for it.
	if err := h.nl.LinkSetIP6AddrGenMode(n.outer, addrGenNone); err != nil {
		return fmt.Errorf("disable address generation: %w", err)
	}
	if n.eth0, err = n.handle.LinkByName(innerLink); err != nil {
		return fmt.Errorf("find %s: %w", innerLink, err)
	}
	return nil
}

// addrGenNone is IN6_ADDR_GEN_MODE_NONE.
const addrGenNone = 1

// hostPrefix returns the prefix that contains only the given address.
func hostPrefix(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

// defaultRoute returns the destination of a default route in the gateway's address family.
func defaultRoute(gateway net.IP) *net.IPNet {
	bits := 8 * len(gateway)
	return &net.IPNet{IP: make(net.IP, len(gateway)), Mask: net.CIDRMask(0, bits)}
}

// permanent adds a permanent neighbor entry that maps ip to mac.
func permanent(nl *netlink.Handle, link netlink.Link, ip net.IP, mac net.HardwareAddr) error {
	family := netlink.FAMILY_V6
	if ip.To4() != nil {
		family = netlink.FAMILY_V4
	}
	err := nl.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, Family: family, State: netlink.NUD_PERMANENT, IP: ip, HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("add neighbor entry for %s: %w", ip, err)
	}
	return nil
}

// retried calls list, and calls it again (up to 20 times) if a concurrent change has interrupted the listing.
func retried[T any](list func() (T, error)) (T, error) {
	for range 20 {
		got, err := list()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return got, err
		}
	}
	return list()
}
