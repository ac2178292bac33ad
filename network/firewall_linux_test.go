package network

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// isRejection reports whether err means that the firewall has rejected a connection.
func isRejection(err error) bool { return errors.Is(err, unix.ECONNREFUSED) }

func TestOtherNetworkIsRejected(t *testing.T) {
	newOutside(t) // the host's default route: without a rejection, packets to private addresses without a route would be sent there
	w := newWorker(t, nil)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "evil", "two/"))
	a.listen(t, "[::]:8080")
	for _, address := range []netip.Addr{a.Address, a.IPv4, bourse.PrivateAddress("two/", "00000900000009")} {
		began := time.Now()
		got, err := b.greeting(at(address, 8080))
		if !isRejection(err) {
			t.Errorf("%s: %q, %v; want a rejection", address, got, err)
		}
		if took := time.Since(began); took > 900*time.Millisecond {
			t.Errorf("%s: rejected after %s, want immediately", address, took)
		}
	}
}

func TestSpoofedSourceIsDropped(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	a, b, c := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/")), w.attach(t, machine(3, "evil", "two/"))
	for _, to := range []struct {
		ns       *os.File
		at, from string
	}{
		{b.ns, at(b.Address, 5000), a.Address.String()},
		{remote.ns, "203.0.113.2:5000", a.IPv4.String()},
	} {
		in, err := inNamespace(to.ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", to.at) })
		if err != nil {
			t.Fatal(err)
		}
		c.add(t, to.from) // a program that runs as root in the machine could do the same
		sendIn(t, c.ns, to.from, to.at, "false")
		sendIn(t, a.ns, to.from, to.at, "true")
		got := make([]byte, 16)
		if err := in.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, _, err := in.ReadFrom(got)
		if string(got[:n]) != "true" || err != nil {
			t.Errorf("%s: first packet from %s: got %q, %v; want the packet of the address's owner", to.at, to.from, got[:n], err)
		}
		_ = in.Close()
	}
}

// sendIn sends a packet from inside a namespace.
func sendIn(t *testing.T, ns *os.File, from, to, text string) {
	t.Helper()
	_, err := inNamespace(ns, func() (struct{}, error) {
		d := net.Dialer{LocalAddr: net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := d.Dial("udp", to)
		if err != nil {
			return struct{}{}, err
		}
		_, err = c.Write([]byte(text))
		return struct{}{}, errors.Join(err, c.Close())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// add adds an address to the machine.
func (i *inhabitant) add(t *testing.T, address string) {
	t.Helper()
	_, err := inNamespace(i.ns, func() (struct{}, error) {
		nl, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return struct{}{}, err
		}
		defer nl.Close()
		link, err := nl.LinkByName(innerLink)
		if err != nil {
			return struct{}{}, err
		}
		a := netip.MustParseAddr(address)
		return struct{}{}, errors.Join(addAddress(nl, link, a), awaitAddress(nl, a))
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestOutbound(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	listenIn(t, remote.ns, "[::]:80", "remote")
	for to, seen := range map[string]string{"203.0.113.2:80": "203.0.113.1", "[2001:db8::2]:80": "2001:db8::1"} {
		if got, err := a.greeting(to); err != nil || got != "remote sees "+seen {
			t.Errorf("%s: got %q, %v; want the source address %s", to, got, err, seen)
		}
	}
	// Addresses that serve the host's cloud credentials are denied.
	if got, err := a.greeting("169.254.169.254:80"); !isRejection(err) {
		t.Errorf("169.254.169.254: %q, %v; want a rejection", got, err)
	}
}

func TestInboundIsBlocked(t *testing.T) {
	remote := newOutside(t)
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	a.listen(t, "[::]:8080")
	_, err := inNamespace(remote.ns, func() (struct{}, error) {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return struct{}{}, err
		}
		return struct{}{}, errors.Join(
			netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a.Address), Gw: net.ParseIP("2001:db8::1")}),
			netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(a.IPv4), Gw: net.ParseIP("203.0.113.1")}))
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, address := range []netip.Addr{a.Address, a.IPv4} {
		if c, err := dialIn(remote.ns, at(address, 8080)); err == nil {
			_ = c.Close()
			t.Errorf("from outside to %s: connected", address)
		} else if !isRejection(err) {
			t.Errorf("from outside to %s: %v, want a rejection", address, err)
		}
	}
}

func TestHostIsClosed(t *testing.T) {
	newOutside(t)
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	home, err := os.Open("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = home.Close() }()
	listenIn(t, home, "[::]:4280", "host")
	for _, to := range []string{"203.0.113.1:4280", "[2001:db8::1]:4280", at(w.host.mark.resolver(), 4280)} {
		if got, err := a.greeting(to); !isRejection(err) {
			t.Errorf("%s: %q, %v; want a rejection", to, got, err)
		}
	}
	if err := a.ping("2001:db8::1"); err != nil {
		t.Errorf("ping the host: %v, want a reply", err)
	}
}

// ping sends one echo request and waits for the reply. It does not need root.
func (i *inhabitant) ping(to string) error {
	_, err := inNamespace(i.ns, func() (struct{}, error) {
		fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM, unix.IPPROTO_ICMPV6)
		if err != nil {
			return struct{}{}, err
		}
		defer func() { _ = unix.Close(fd) }()
		limit := unix.Timeval{Sec: 2}
		if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &limit); err != nil {
			return struct{}{}, err
		}
		request := []byte{128, 0, 0, 0, 0, 0, 0, 1}
		if err := unix.Sendto(fd, request, 0, &unix.SockaddrInet6{Addr: netip.MustParseAddr(to).As16()}); err != nil {
			return struct{}{}, err
		}
		reply := make([]byte, 64)
		n, _, err := unix.Recvfrom(fd, reply, 0)
		if err == nil && (n == 0 || reply[0] != 129) {
			err = fmt.Errorf("reply %v", reply[:n])
		}
		return struct{}{}, err
	})
	return err
}

// newRemote connects the host to another namespace with a link that has the mesh's name. The namespace acts as another
// worker's host and has the given addresses.
func newRemote(t *testing.T, mesh string, addresses ...netip.Addr) *os.File {
	t.Helper()
	ns, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = mesh
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns.Fd()))}); err != nil {
		t.Fatal(err)
	}
	here, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	there, err := netlink.NewHandleAt(netns.NsHandle(ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	t.Cleanup(func() {
		if link, err := netlink.LinkByName(mesh); err == nil {
			_ = netlink.LinkDel(link)
		}
	})
	plumb(t, here, mesh)
	eth0, err := there.LinkByName("eth0")
	if err != nil {
		t.Fatal(err)
	}
	local, err := here.LinkByName(mesh)
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for _, a := range addresses {
		own = append(own, a.String()+"/128")
		if err := permanent(here, local, a.AsSlice(), eth0.Attrs().HardwareAddr); err != nil {
			t.Fatal(err)
		}
	}
	plumb(t, there, "eth0", own...)
	if err := permanent(there, eth0, gateway6, local.Attrs().HardwareAddr); err != nil {
		t.Fatal(err)
	}
	if err := there.RouteAdd(&netlink.Route{LinkIndex: eth0.Attrs().Index, Gw: gateway6, Flags: int(netlink.FLAG_ONLINK)}); err != nil {
		t.Fatal(err)
	}
	return ns
}

// TestRemotes checks that machines on other workers can reach only machines in their own network, and that only the
// mesh can deliver their packets.
func TestRemotes(t *testing.T) {
	const mesh = "bwtest"
	w := newWorker(t, func(c *Config) { c.Mesh = mesh })
	outside := newOutside(t)
	red, blue := w.attach(t, machine(1, "shop", "red")), w.attach(t, machine(2, "shop", "blue"))
	red.listen(t, "[::]:80")
	blue.listen(t, "[::]:80")
	redThere, blueThere := Spec{Machine: "00000200000001", Network: "org/red"}, Spec{Machine: "00000200000002", Network: "org/blue"}
	unknown := Spec{Machine: "00000200000003", Network: "org/red"}
	ns := newRemote(t, mesh, redThere.address(), blueThere.address(), unknown.address())
	listenIn(t, ns, "[::]:80", "remote")
	dial := func(from, to Spec) error {
		c, err := inNamespace(ns, func() (net.Conn, error) {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: from.address().AsSlice()}, Timeout: time.Second}
			return d.Dial("tcp", at(to.address(), 80))
		})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if dial(redThere, red.spec) == nil {
		t.Error("a machine that has not been added yet can connect")
	}
	remotes := []Remote{
		{Network: redThere.Network, Address: redThere.address()},
		{Network: blueThere.Network, Address: blueThere.address()},
		{Network: "org/green", Address: netip.MustParseAddr("fdaa::9:2")},
	}
	for range 2 { // the second call changes nothing
		if err := w.SetRemotes(t.Context(), remotes, false); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		from, to Spec
		ok       bool
	}{
		{redThere, red.spec, true},
		{blueThere, blue.spec, true},
		{redThere, blue.spec, false},
		{blueThere, red.spec, false},
		{unknown, red.spec, false},
	} {
		if err := dial(c.from, c.to); (err == nil) != c.ok {
			t.Errorf("%s to %s: %v, want success: %t", c.from.Machine, c.to.Machine, err, c.ok)
		}
	}
	if _, err := dialIn(ns, at(w.host.mark.resolver(), dnsPort)); err == nil {
		t.Error("another worker can connect to the resolver")
	}
	if got, err := red.greeting(at(redThere.address(), 80)); err != nil || got != "remote sees "+red.Address.String() {
		t.Errorf("to the remote machine in the same network: %q, %v", got, err)
	}
	for _, to := range []Spec{blueThere, unknown} {
		if _, err := red.greeting(at(to.address(), 80)); err == nil {
			t.Errorf("%s is reachable from another network", to.Machine)
		}
	}
	// Another host on the local network uses a remote machine's address. Machines must not answer it, and it must not
	// reach remote machines through this host.
	there, err := netlink.NewHandleAt(netns.NsHandle(outside.ns.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	plumb(t, there, "eth0", redThere.address().String()+"/128")
	for _, to := range []Spec{red.spec, blueThere} {
		link, err := there.LinkByName("eth0")
		if err != nil {
			t.Fatal(err)
		}
		if err := there.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: hostPrefix(to.address()), Gw: net.ParseIP("2001:db8::1")}); err != nil {
			t.Fatal(err)
		}
		if c, err := dialIn(outside.ns, at(to.address(), 80)); err == nil {
			_ = c.Close()
			t.Errorf("a host on the local network can connect to %s", to.Machine)
		}
	}
	checkForgery(t, red, redThere.address(), ns, outside.ns)
	if !w.firewall.isIntact() {
		t.Error("the rules differ from the desired ones")
	}
	if err := w.SetRemotes(t.Context(), nil, true); err != nil {
		t.Fatal(err)
	}
	if err := dial(redThere, red.spec); err != nil {
		t.Errorf("after SetRemotes with keep: %v, want the remote machine to remain reachable", err)
	}
	if err := w.SetRemotes(t.Context(), nil, false); err != nil {
		t.Fatal(err)
	}
	if dial(redThere, red.spec) == nil || !w.firewall.isIntact() {
		t.Error("a machine that was removed can still connect, or the rules are incomplete")
	}
	// Without machines, there are no rules, so the mesh's link must be down.
	if err := w.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if link, err := w.host.nl.LinkByName(mesh); err != nil || link.Attrs().Flags&net.FlagUp != 0 {
		t.Errorf("the mesh's link without rules: %+v, %v; want it down", link, err)
	}
}

// checkForgery checks that packets that a host on the local network sends from a remote machine's address do not reach
// a machine, even if that machine exchanges UDP packets with the remote machine.
func checkForgery(t *testing.T, here *inhabitant, remote netip.Addr, there, lan *os.File) {
	t.Helper()
	socket := func(ns *os.File, from, to netip.AddrPort) net.Conn {
		c, err := inNamespace(ns, func() (net.Conn, error) {
			return net.DialUDP("udp", net.UDPAddrFromAddrPort(from), net.UDPAddrFromAddrPort(to))
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		return c
	}
	a, b := netip.AddrPortFrom(here.Address, 1000), netip.AddrPortFrom(remote, 2000)
	machine, honest, forged := socket(here.ns, a, b), socket(there, b, a), socket(lan, b, a)
	var text [16]byte
	for i, c := range []net.Conn{machine, honest, forged, honest} {
		if _, err := c.Write([]byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
		from := map[int]net.Conn{0: honest, 1: machine, 3: machine}[i]
		if from == nil {
			continue
		}
		if err := from.SetReadDeadline(time.Now().Add(5 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := from.Read(text[:]); err != nil || n != 1 || text[0] != byte(i) {
			t.Fatalf("packet %d: got %v, %v, want the packet's number", i, text[:n], err)
		}
	}
}

// TestLaptopsWithoutMachines checks that a host without machines has rules as long as a laptop is connected to it, and
// that SetRemotes with keep removes laptops but keeps other remotes.
func TestLaptopsWithoutMachines(t *testing.T) {
	const mesh = "bwtest"
	w := newWorker(t, func(c *Config) { c.Mesh = mesh })
	if err := w.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	laptop := Remote{Network: "org/red", Address: bourse.LaptopAddress("org/red", [32]byte{1}), Here: true}
	there := Remote{Network: "org/red", Address: bourse.PrivateAddress("org/red", "00000200000001")}
	newRemote(t, mesh, laptop.Address)
	set := func(keep bool, remotes ...Remote) {
		t.Helper()
		if err := w.SetRemotes(t.Context(), remotes, keep); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.AdmitPeers(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := w.clearUnused(); err != nil || !w.firewall.built || !w.firewall.isIntact() {
		t.Errorf("rules are missing after AdmitPeers: %v", err)
	}
	set(false, laptop, there)
	if err := w.clearUnused(); err != nil || len(w.firewall.remotes) != 2 || !w.firewall.isIntact() {
		t.Errorf("rules with a laptop are missing or incomplete: %v, %v", err, w.firewall.remotes)
	}
	if who, ok := w.machineAt(laptop.Address); !ok || who.Network != "org/red" {
		t.Errorf("machineAt for the laptop: got %+v, %t", who, ok)
	}
	set(true)
	if _, ok := w.firewall.remotes[there.Address]; !ok || len(w.firewall.remotes) != 1 || !w.firewall.isIntact() {
		t.Errorf("kept %v", w.firewall.remotes)
	}
	if _, ok := w.machineAt(laptop.Address); ok {
		t.Error("machineAt still finds the laptop after it was removed")
	}
	if err := w.clearUnused(); err != nil || w.firewall.built {
		t.Errorf("rules remain without laptops: %v", err)
	}
}

// TestRemotesBeforeMachines checks that remotes that are set while the first machine is being attached are included in
// the rules.
func TestRemotesBeforeMachines(t *testing.T) {
	const mesh = "bwtest"
	w := newWorker(t, func(c *Config) { c.Mesh = mesh })
	spec := machine(1, "shop", "red")
	if _, ok := w.Networks(); ok {
		t.Error("Networks succeeds before Recover")
	}
	if err := w.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := w.reserve(spec); err != nil {
		t.Fatal(err)
	}
	if got, ok := w.Networks(); !ok || len(got) != 0 {
		t.Errorf("Networks before the rules exist: got %v, want none", got)
	}
	there := Spec{Machine: "00000200000001", Network: spec.Network}
	newRemote(t, mesh, there.address())
	if err := w.SetRemotes(t.Context(), []Remote{{Network: there.Network, Address: there.address()}}, false); err != nil {
		t.Fatal(err)
	}
	w.attach(t, spec)
	if got, ok := w.Networks(); !ok || len(got) != 1 || got[0] != spec.Network {
		t.Errorf("Networks: got %v", got)
	}
	if len(w.firewall.remotes) != 1 || !w.firewall.isIntact() {
		t.Errorf("the rules contain %v, want one remote", w.firewall.remotes)
	}
}
