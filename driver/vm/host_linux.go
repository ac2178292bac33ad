package vm

import (
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/vm/session"
)

// addTap adds a tap device that belongs to user to a machine's network namespace, replacing an earlier boot's device.
// It redirects all packets that arrive at eth0 to the tap device, and vice versa. The namespace itself therefore no
// longer receives packets.
func addTap(namespace string, user uint32) (device, error) {
	type result struct {
		device
		err error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // never unlocked, so the thread, which is in the namespace, exits with this goroutine
		d, err := addTapIn(namespace, user)
		done <- result{d, err}
	}()
	r := <-done
	if r.err != nil {
		return device{}, fmt.Errorf("connect the virtual machine to its network: %w", r.err)
	}
	return r.device, nil
}

// addTapIn is the part of addTap that runs in the namespace. It first moves the calling thread into the namespace.
func addTapIn(namespace string, user uint32) (device, error) {
	f, err := os.Open(namespace)
	if err != nil {
		return device{}, err
	}
	defer f.Close()
	if err := netns.Set(netns.NsHandle(f.Fd())); err != nil {
		return device{}, err
	}
	nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return device{}, err
	}
	defer nl.Close()
	eth0, err := nl.LinkByName("eth0")
	if err != nil {
		return device{}, fmt.Errorf("find eth0: %w", err)
	}
	if old, err := nl.LinkByName(tapName); err == nil {
		if err := nl.LinkDel(old); err != nil {
			return device{}, fmt.Errorf("remove the previous %s: %w", tapName, err)
		}
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = tapName, eth0.Attrs().MTU
	err = netlink.LinkAdd(&netlink.Tuntap{
		LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_NO_PI | netlink.TUNTAP_VNET_HDR | netlink.TUNTAP_ONE_QUEUE, Owner: user, Group: user,
	})
	if err != nil {
		return device{}, fmt.Errorf("add %s: %w", tapName, err)
	}
	tap, err := nl.LinkByName(tapName)
	if err != nil {
		return device{}, fmt.Errorf("find %s: %w", tapName, err)
	}
	if err := errors.Join(nl.LinkSetMTU(tap, attrs.MTU), nl.LinkSetUp(tap)); err != nil {
		return device{}, fmt.Errorf("set %s up: %w", tapName, err)
	}
	if err := errors.Join(redirect(nl, eth0, tap), redirect(nl, tap, eth0)); err != nil {
		return device{}, err
	}
	return describe(nl, eth0)
}

// redirect makes the kernel send all packets that arrive at one device (from) out through another device (to). It
// replaces an earlier rule.
func redirect(nl *netlink.Handle, from, to netlink.Link) error {
	handle := netlink.MakeHandle(0xffff, 0)
	ingress := &netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: from.Attrs().Index, Parent: netlink.HANDLE_INGRESS, Handle: handle}}
	if err := nl.QdiscDel(ingress); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("remove the previous rule from %s: %w", from.Attrs().Name, err)
	}
	if err := nl.QdiscAdd(ingress); err != nil {
		return fmt.Errorf("add an ingress queue to %s: %w", from.Attrs().Name, err)
	}
	err := nl.FilterAdd(&netlink.U32{
		FilterAttrs: netlink.FilterAttrs{LinkIndex: from.Attrs().Index, Parent: handle, Priority: 1, Protocol: unix.ETH_P_ALL},
		Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
	})
	if err != nil {
		return fmt.Errorf("redirect packets from %s: %w", from.Attrs().Name, err)
	}
	return nil
}

// describe returns the settings of eth0 that the guest must apply to its own interface, such as its addresses and
// gateways.
func describe(nl *netlink.Handle, eth0 netlink.Link) (device, error) {
	d := device{mac: eth0.Attrs().HardwareAddr.String(), mtu: eth0.Attrs().MTU}
	addrs, err := nl.AddrList(eth0, netlink.FAMILY_ALL)
	if err != nil {
		return device{}, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		if a.Scope == int(netlink.SCOPE_UNIVERSE) {
			d.addresses = append(d.addresses, a.IPNet.String())
		}
	}
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		neighbors, err := nl.NeighList(eth0.Attrs().Index, family)
		if err != nil {
			return device{}, fmt.Errorf("list neighbors: %w", err)
		}
		routes, err := nl.RouteList(eth0, family)
		if err != nil {
			return device{}, fmt.Errorf("list routes: %w", err)
		}
		for _, r := range routes {
			if r.Gw == nil {
				continue
			}
			d.gateways = append(d.gateways, session.Gateway{Address: r.Gw.String(), MAC: hardwareAddress(neighbors, r.Gw)})
		}
	}
	return d, nil
}

func hardwareAddress(neighbors []netlink.Neigh, ip net.IP) string {
	for _, n := range neighbors {
		if n.IP.Equal(ip) {
			return n.HardwareAddr.String()
		}
	}
	return ""
}

// deviceNumbers returns the major and minor number of the character device at path. It returns false if path is not a
// character device.
func deviceNumbers(path string) (major, minor int64, ok bool) {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return 0, 0, false
	}
	return int64(unix.Major(st.Rdev)), int64(unix.Minor(st.Rdev)), true
}

// findBlockDevice returns the device number and the sequence number of the block device at path. The kernel does not
// reuse sequence numbers until the host reboots. The error has CodeInvalid if path is not a block device.
func findBlockDevice(path string) (blockDevice, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return blockDevice{}, err
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return blockDevice{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFBLK {
		return blockDevice{}, bourse.Errorf(bourse.CodeInvalid, "a virtual machine cannot mount a host directory")
	}
	d := blockDevice{major: int64(unix.Major(st.Rdev)), minor: int64(unix.Minor(st.Rdev))}
	d.sequence, err = session.Sequence(f)
	return d, err
}
