package mesh

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"golang.zx2c4.com/wireguard/wgctrl"
	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
	"github.com/bourse-dev/bourse/network"
)

// laptop is a device outside the cluster, in its own network namespace.
type laptop struct {
	Laptop
	t    *testing.T
	ns   *os.File
	link string
	key  wgtypes.Key
}

// newLaptop starts wireguard-go in a namespace. The laptop's entry is the worker on h.
func newLaptop(t *testing.T, ns *os.File, id, name string, h *host, ttl time.Duration) *laptop {
	t.Helper()
	key, err := wgtypes.GeneratePrivateKey()
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	l := &laptop{t: t, ns: ns, key: key, Laptop: Laptop{
		ID: id, Network: "org/" + name, Key: key.PublicKey(), Entry: h.Self.ID, CreatedAt: now, ExpiresAt: now.Add(ttl),
	}}
	dir := t.TempDir()
	l.link = LinkName(dir)
	_, err = within(ns, func() (*os.Process, error) {
		return companion.Spawn(t.Context(), []string{"/proc/self/exe", "tunnel", dir}, filepath.Join(dir, "log"))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, err := within(ns, func() (struct{}, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return struct{}{}, Remove(ctx, dir)
		})
		if err != nil {
			t.Errorf("remove the laptop's link: %v", err)
		}
	})
	ip(t, ns, "link set "+l.link+" up mtu 1280")
	l.use(h)
	return l
}

// address returns the laptop's address.
func (l *laptop) address() netip.Addr { return bourse.LaptopAddress(l.Network, l.Laptop.Key) }

// use connects the laptop to a worker. It routes all private addresses there, as a malicious laptop might.
func (l *laptop) use(h *host) {
	l.t.Helper()
	client, err := wgctrl.New()
	if err != nil {
		l.t.Fatal(err)
	}
	defer client.Close()
	key, _ := KeyOf(h.Self.ID, h.Self.Mesh)
	err = client.ConfigureDevice(l.link, wgtypes.Config{PrivateKey: &l.key, ReplacePeers: true, Peers: []wgtypes.PeerConfig{{
		PublicKey: key, Endpoint: net.UDPAddrFromAddrPort(h.Self.Mesh.Endpoint), PersistentKeepaliveInterval: new(25 * time.Second),
		AllowedIPs: []net.IPNet{{IP: net.ParseIP("fdaa::"), Mask: net.CIDRMask(16, 128)}},
	}}})
	if err != nil {
		l.t.Fatal(err)
	}
	ip(l.t, l.ns, fmt.Sprintf("addr replace %s/128 dev %s nodad", l.address(), l.link))
	ip(l.t, l.ns, fmt.Sprintf("route replace fdaa::/16 dev %s", l.link))
}

// guest returns a guest that connects to machines from the laptop.
func (l *laptop) guest() *guest { return &guest{t: l.t, ns: l.ns} }

// publishLaptops is like publish, but also tells all hosts about laptops.
func publishLaptops(hosts []*host, guests []*guest, laptops ...*laptop) {
	o := order{Workers: []Worker{}}
	for _, h := range hosts {
		o.Workers = append(o.Workers, h.Self)
	}
	for _, g := range guests {
		o.Machines = append(o.Machines, g.Machine)
	}
	for _, l := range laptops {
		o.Laptops = append(o.Laptops, l.Laptop)
	}
	for _, h := range hosts {
		h.tell(o)
	}
}

// patience is the time after which a connection counts as refused.
const patience = time.Second

// connect opens a connection and closes it.
func connect(from *os.File, to netip.Addr, port uint16) error {
	c, err := within(from, func() (net.Conn, error) {
		return net.DialTimeout("tcp", netip.AddrPortFrom(to, port).String(), patience)
	})
	if err != nil {
		return err
	}
	return c.Close()
}

// sendPacket sends a packet over UDP.
func sendPacket(from *os.File, to net.Addr, text string) error {
	c, err := within(from, func() (net.Conn, error) { return net.Dial("udp", to.String()) })
	if err != nil {
		return err
	}
	_, err = c.Write([]byte(text))
	return errors.Join(err, c.Close())
}

// TestLaptop connects laptops to an entry that runs a machine in their network, and to one that does not. The laptops
// must reach the machines in their network on all workers, by address and by name, and nothing else. Nothing may reach
// a laptop. A laptop that is removed or expires must lose access within seconds.
func TestLaptop(t *testing.T) {
	needRoot(t)
	out := newRouter(t)
	var hosts []*host
	for i, id := range []bourse.WorkerID{"first", "second", "third"} {
		ns := newNamespace(t)
		plug(t, ns, out, 1+i, 1500)
		hosts = append(hosts, newHost(t, ns, id, fmt.Sprintf("10.1.%d.2:51820", 1+i)))
	}
	red1, red2, blue2 := hosts[0].attach(1, "red"), hosts[1].attach(1, "red"), hosts[1].attach(2, "blue")
	guests := []*guest{red1, red2, blue2}
	home := newNAT(t, out, 9)
	var laptops []*laptop
	for i, at := range []*host{hosts[0], hosts[2], hosts[0]} {
		ns := newNamespace(t)
		plug(t, ns, home, 20+i, 1500)
		laptops = append(laptops, newLaptop(t, ns, fmt.Sprint("laptop-", i), "red", at, time.Hour))
	}
	publishLaptops(hosts, guests, laptops...)
	for i, l := range laptops {
		for _, to := range []*guest{red1, red2} {
			took := eventually(t, fmt.Sprintf("laptop %d to %s", i, to.Worker), func() error {
				_, _, err := l.guest().dial(to, time.Second)
				return err
			})
			t.Logf("laptop %d reaches %s after %s", i, to.Worker, took)
			eventually(t, "name of "+string(to.Worker), func() error {
				got, err := l.guest().lookup(string(to.ID) + ".vm.red.internal")
				if err == nil && !slices.Equal(got, []string{to.address().String()}) {
					err = fmt.Errorf("%s, want %s", got, to.address())
				}
				return err
			})
		}
		if got, err := l.guest().lookup(string(blue2.ID) + ".vm.blue.internal"); err == nil {
			t.Errorf("laptop %d can resolve a name in another network: %s", i, got)
		}
	}
	for i, l := range laptops {
		if err := connect(l.ns, blue2.address(), 80); !errors.Is(err, unix.ENETUNREACH) {
			t.Errorf("laptop %d to another network: %v, want an ICMP error from the entry's host", i, err)
		}
	}
	if err := connect(laptops[2].ns, laptops[0].address(), 80); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("laptop to another laptop: %v, want a reset by the entry's firewall", err)
	}
	// refused checks that a connection fails, whereas a connection to the machine other succeeds within the same time.
	refused := func(what string, from *os.File, other *guest, to netip.Addr, port uint16) {
		t.Helper()
		if connect(from, to, port) == nil {
			t.Error(what)
		}
		if err := connect(from, other.address(), 80); err != nil {
			t.Errorf("connection to another machine, after the check whether %s: %v", what, err)
		}
	}
	for _, l := range laptops {
		listener, err := within(l.ns, func() (net.Listener, error) { return net.Listen("tcp", "[::]:80") })
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
	}
	refused("a machine on the entry reaches a laptop", red1.ns, red2, laptops[0].address(), 80)
	refused("a machine on another worker reaches a laptop", red2.ns, red1, laptops[0].address(), 80)
	refused("a program on the entry's host reaches a laptop", hosts[0].ns, red1, laptops[0].address(), 80)
	refused("a program on another worker's host reaches a laptop", hosts[1].ns, red2, laptops[0].address(), 80)
	refused("a laptop reaches another one at the same entry", laptops[2].ns, red2, laptops[0].address(), 80)
	refused("a laptop reaches another one at another entry", laptops[1].ns, red2, laptops[0].address(), 80)
	service, err := within(hosts[0].ns, func() (net.Listener, error) { return net.Listen("tcp", "[::]:81") })
	if err != nil {
		t.Fatal(err)
	}
	defer service.Close()
	refused("a laptop reaches the entry's host", laptops[0].ns, red2, Address(hosts[0].Self.Tag), 81)
	refused("a laptop reaches the entry's host at its resolver's address", laptops[0].ns, red2, network.ResolverAddress, 81)

	// A laptop sends packets from another laptop's address, a machine's address, an unused address, and its own. Only
	// packets from its own address may arrive.
	thief := laptops[2]
	box, err := within(red1.ns, func() (net.PacketConn, error) { return net.ListenPacket("udp", "[::]:82") })
	if err != nil {
		t.Fatal(err)
	}
	defer box.Close()
	var reply *net.UDPConn
	for _, stolen := range []netip.Addr{laptops[0].address(), red2.address(), netip.MustParseAddr("fdaa:1:2:3::4"), thief.address()} {
		if stolen != thief.address() {
			ip(t, thief.ns, fmt.Sprintf("addr add %s/128 dev %s nodad", stolen, thief.link))
		}
		c, err := within(thief.ns, func() (*net.UDPConn, error) { // not connected, so that it receives packets from anyone
			return net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(stolen, 0)))
		})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.WriteToUDPAddrPort([]byte(stolen.String()), netip.AddrPortFrom(red1.address(), 82)); err != nil {
			t.Fatal(err)
		}
		if stolen != thief.address() {
			ip(t, thief.ns, fmt.Sprintf("addr del %s/128 dev %s", stolen, thief.link))
			continue
		}
		// Programs on hosts cannot send packets to a laptop, but a machine can answer it.
		for _, h := range hosts[:2] {
			_ = sendPacket(h.ns, c.LocalAddr(), "from a host")
		}
		reply = c
	}
	_ = box.SetReadDeadline(time.Now().Add(time.Minute))
	text := make([]byte, 64)
	if n, from, err := box.ReadFrom(text); err != nil || string(text[:n]) != thief.address().String() {
		t.Errorf("first packet from the laptop: got %q from %v, %v, want one from its own address", text[:n], from, err)
	} else if _, err := box.WriteTo([]byte("from the machine"), from); err != nil {
		t.Fatal(err)
	}
	_ = reply.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := reply.Read(text); err != nil || string(text[:n]) != "from the machine" {
		t.Errorf("first packet to the laptop: got %q, %v, want the machine's", text[:n], err)
	}

	cut := func(what string, l *laptop) {
		t.Helper()
		took := eventually(t, what, func() error {
			for _, to := range []*guest{red1, red2} {
				if c, _, err := l.guest().dial(to, patience); err == nil {
					return errors.Join(errors.New("the laptop reaches "+string(to.Worker)), c.Close())
				}
			}
			return nil
		})
		t.Logf("%s: lost access after %s", what, took)
		if _, _, err := red1.dial(red2, patience); err != nil {
			t.Errorf("%s: a machine cannot connect to the other machine, either: %v", what, err)
		}
	}
	c, in, err := laptops[0].guest().dial(red2, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	hosts[0].kill()
	if err := echo(c, in, []byte("without a daemon")); err != nil {
		t.Errorf("echo after the entry's daemon was killed: %v", err)
	}
	hosts[0].start()
	publishLaptops(hosts, guests, laptops...)
	if err := echo(c, in, []byte("with another daemon")); err != nil {
		t.Errorf("echo with a new daemon: %v", err)
	}
	laptops[1].ExpiresAt = time.Now()
	publishLaptops(hosts, guests, laptops[1:]...) // the first one was removed, and the second one has expired
	cut("removed", laptops[0])
	cut("expired", laptops[1])
	if _, _, err := thief.guest().dial(red2, patience); err != nil {
		t.Errorf("the remaining laptop cannot connect: %v", err)
	}
	soon := *thief
	soon.ExpiresAt = time.Now().Add(time.Second)
	publishLaptops(hosts, guests, &soon)
	cut("expires", thief)
}
