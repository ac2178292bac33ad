package mesh

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// veth connects the current namespace with another one, in which the link is named up0.
func veth(name string, ns *os.File, mtu int) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, mtu
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "up0", PeerMTU: uint32(mtu), PeerNamespace: netlink.NsFd(int(ns.Fd()))})
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("networks need root")
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		t.Skip("no tun devices here")
	}
}

// publish tells each host about all hosts and machines.
func publish(hosts []*host, guests []*guest) {
	var o order
	for _, h := range hosts {
		o.Workers = append(o.Workers, h.Self)
	}
	for _, g := range guests {
		o.Machines = append(o.Machines, g.Machine)
	}
	for _, h := range hosts {
		h.tell(o)
	}
}

// echo sends a text and waits until it comes back.
func echo(to io.Writer, from io.Reader, text []byte) error {
	if _, err := to.Write(text); err != nil {
		return err
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(from, got); err != nil {
		return err
	}
	if !bytes.Equal(got, text) {
		return fmt.Errorf("the received bytes differ from the sent ones")
	}
	return nil
}

// TestThreeWorkers connects a worker that has a public address and two workers behind one NAT. Machines must reach the
// other machines in their network by name and by address, and nothing else. Connections must survive if the daemon is
// killed, and may only pause if the wireguard-go process is killed.
func TestThreeWorkers(t *testing.T) {
	needRoot(t)
	out := newRouter(t)
	public := newNamespace(t)
	plug(t, public, out, 1, 1500)
	nat := newNAT(t, out, 2)
	var hosts []*host
	hosts = append(hosts, newHost(t, public, "public", "10.1.1.2:51820"))
	for i, id := range []string{"hidden-1", "hidden-2"} {
		ns := newNamespace(t)
		plug(t, ns, nat, 3+i, 1500)
		hosts = append(hosts, newHost(t, ns, bourse.WorkerID(id), fmt.Sprintf("10.1.%d.2:51820", 3+i)))
	}
	var red, blue, all []*guest
	for i, h := range hosts {
		red = append(red, h.attach(1, "red"))
		if i < 2 {
			blue = append(blue, h.attach(2, "blue"))
		}
	}
	all = slices.Concat(red, blue)
	publish(hosts, all)
	for _, from := range all {
		for _, to := range all {
			if from.Network != to.Network {
				continue
			}
			took := eventually(t, fmt.Sprintf("%s to %s", from.Worker, to.Worker), func() error {
				_, _, err := from.dial(to, time.Second)
				return err
			})
			t.Logf("%s reaches %s after %s", from.Worker, to.Worker, took)
			eventually(t, "name of "+string(to.Worker), func() error {
				got, err := from.lookup(string(to.ID) + ".vm." + to.Network[len("org/"):] + ".internal")
				if err == nil && !slices.Equal(got, []string{to.address().String()}) {
					err = fmt.Errorf("%s, want %s", got, to.address())
				}
				return err
			})
		}
	}
	for _, from := range all {
		for _, to := range all {
			if from.Network == to.Network {
				continue
			}
			if _, _, err := from.dial(to, 300*time.Millisecond); err == nil {
				t.Errorf("a machine in %s on %s can connect to %s on %s", from.Network, from.Worker, to.Network, to.Worker)
			}
		}
	}

	c, in, err := red[0].dial(red[1], time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	say := func(what string) time.Duration {
		t.Helper()
		begun := time.Now()
		if err := echo(c, in, []byte(what)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		return time.Since(begun)
	}
	say("before anything")
	tunnel := hosts[0].tunnelPID()
	hosts[0].kill()
	t.Logf("after the daemon was killed, a round trip takes %s", say("without a daemon"))
	if _, _, err := red[2].dial(red[0], time.Second); err != nil {
		t.Errorf("new connection without a daemon: %v", err)
	}
	hosts[0].start()
	publish(hosts, all)
	say("with another daemon")
	eventually(t, "peers of the new daemon", func() error {
		if got := hosts[0].tell(order{}).Peers; len(got) != 2 || !got[0].Reachable(time.Now()) {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	if got := hosts[0].tunnelPID(); got != tunnel {
		t.Errorf("wireguard-go has process ID %d, want %d", got, tunnel)
	}
	if err := unix.Kill(tunnel, unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	gap := say("while wireguard-go is restarted")
	t.Logf("after wireguard-go was killed, a round trip takes %s", gap)
	if gap > 10*time.Second {
		t.Errorf("connections paused for %s, want at most 10 s", gap)
	}
	took := eventually(t, "everything is as before", func() error {
		_, _, err := red[0].dial(red[2], time.Second)
		return err
	})
	t.Logf("the other worker is reached after %s", took)
	ip(t, public, "link set "+LinkName(filepath.Join(hosts[0].dir, "mesh"))+" down")
	took = eventually(t, "the link is up again, with its address and routes", func() error {
		_, _, err := red[0].dial(red[2], time.Second)
		return err
	})
	t.Logf("after the link was set down, the other worker is reached after %s", took)

	// While a daemon's view is still empty, the daemon must not change anything.
	hosts[0].kill()
	hosts[0].View = order{}
	hosts[0].start()
	hosts[0].tell(order{})
	say("with an empty view")
	if _, _, err := red[0].dial(red[2], 5*time.Second); err != nil {
		t.Errorf("new connection to another worker while the daemon's view is empty: %v", err)
	}
	if _, _, err := red[1].dial(red[0], 5*time.Second); err != nil {
		t.Errorf("new connection from another worker while the daemon's view is empty: %v", err)
	}
	publish(hosts, all)

	// The last worker lies: it announces the second worker's key and machine.
	liar, stolen := *hosts[2], *red[1]
	liar.Self.Mesh, stolen.Worker = hosts[1].Self.Mesh, liar.Self.ID
	lie := order{Workers: []Worker{hosts[0].Self, hosts[1].Self, liar.Self}, Machines: []Machine{red[0].Machine, stolen.Machine, red[1].Machine, red[2].Machine}}
	hosts[0].tell(lie)
	eventually(t, "the liar is no peer", func() error {
		if got := hosts[0].tell(order{}).Peers; len(got) != 1 || got[0].Worker != hosts[1].Self.ID {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	t.Logf("despite a lie, a round trip takes %s", say("despite the lie"))
	if _, _, err := red[0].dial(red[2], 300*time.Millisecond); err == nil {
		t.Error("the liar's machine is reachable")
	}
}

// TestSmallMTU sends data over paths with IPv6's minimum MTU, either on the hosts' own links or further away.
func TestSmallMTU(t *testing.T) {
	needRoot(t)
	for name, mtu := range map[string][2]int{"on the host": {1280, 1280}, "on the way": {1500, 1280}} {
		t.Run(name, func(t *testing.T) {
			out := newRouter(t)
			var hosts []*host
			var guests []*guest
			for i := range 2 {
				ns, router := newNamespace(t), newRouter(t)
				plug(t, router, out, 1+i, mtu[1])
				plug(t, ns, router, 11+i, mtu[0])
				ip(t, out, fmt.Sprintf("route add 10.1.%d.0/24 via 10.1.%d.2", 11+i, 1+i))
				h := newHost(t, ns, bourse.WorkerID(fmt.Sprintf("small-%d", i)), fmt.Sprintf("10.1.%d.2:51820", 11+i))
				hosts, guests = append(hosts, h), append(guests, h.attach(1, "red"))
			}
			publish(hosts, guests)
			eventually(t, "connect", func() error {
				_, _, err := guests[0].dial(guests[1], time.Second)
				return err
			})
			c, in, err := guests[0].dial(guests[1], time.Second)
			if err != nil {
				t.Fatal(err)
			}
			_ = c.SetDeadline(time.Now().Add(20 * time.Second))
			begun := time.Now()
			text := bytes.Repeat([]byte("0123456789abcdef"), 4096)
			for range 32 {
				if err := echo(c, in, text); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("2 MiB there and back took %s", time.Since(begun))
		})
	}
}

// TestLoss connects workers through a router that drops one packet in twenty. Machines must reach each other without
// losing data.
func TestLoss(t *testing.T) {
	needRoot(t)
	out := newRouter(t)
	var hosts []*host
	var guests []*guest
	for i := range 2 {
		ns := newNamespace(t)
		plug(t, ns, out, 1+i, 1500)
		h := newHost(t, ns, bourse.WorkerID(fmt.Sprintf("lossy-%d", i)), fmt.Sprintf("10.1.%d.2:51820", 1+i))
		hosts, guests = append(hosts, h), append(guests, h.attach(1, "red"))
	}
	dropped := loseOneIn(t, out, 20)
	publish(hosts, guests)
	took := eventually(t, "connect", func() error {
		_, _, err := guests[0].dial(guests[1], 5*time.Second)
		return err
	})
	c, in, err := guests[0].dial(guests[1], 20*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	begun := time.Now()
	text := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	for range 16 {
		if err := echo(c, in, text); err != nil {
			t.Fatal(err)
		}
	}
	n := dropped()
	if n == 0 {
		t.Error("the router did not drop any packets")
	}
	t.Logf("connected after %s; 1 MiB there and back took %s; %d packets were dropped", took, time.Since(begun), n)
}

// loseOneIn makes a router drop one in n packets. It returns a function that returns the number of dropped packets.
func loseOneIn(t *testing.T, router *os.File, n uint32) (dropped func() uint64) {
	t.Helper()
	table := &nftables.Table{Family: nftables.TableFamilyIPv4, Name: "loss"}
	chain := &nftables.Chain{Name: "forward", Table: table, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward, Priority: nftables.ChainPriorityFilter}
	do := func(fn func(c *nftables.Conn) (uint64, error)) uint64 {
		t.Helper()
		count, err := within(router, func() (uint64, error) {
			c, err := nftables.New()
			if err != nil {
				return 0, err
			}
			return fn(c)
		})
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	do(func(c *nftables.Conn) (uint64, error) {
		c.AddTable(table)
		c.AddChain(chain)
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Numgen{Register: 1, Modulus: n, Type: unix.NFT_NG_RANDOM},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: make([]byte, 4)},
			&expr.Counter{}, &expr.Verdict{Kind: expr.VerdictDrop},
		}})
		return 0, c.Flush()
	})
	return func() uint64 {
		return do(func(c *nftables.Conn) (uint64, error) {
			rules, err := c.GetRules(table, chain)
			for _, r := range rules {
				for _, e := range r.Exprs {
					if counter, ok := e.(*expr.Counter); ok {
						return counter.Packets, nil
					}
				}
			}
			return 0, err
		})
	}
}
