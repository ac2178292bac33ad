package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"

	"github.com/bourse-dev/bourse"
)

// machine returns the spec of the machine with number n, on a worker with tag 1.
func machine(n int, app bourse.AppName, network string) Spec {
	return Spec{Machine: bourse.MachineID(fmt.Sprintf("000001%08x", n)), App: app, Network: "org/" + network}
}

func at(a netip.Addr, port uint16) string { return netip.AddrPortFrom(a, port).String() }

func TestSamePortOfTwoMachines(t *testing.T) {
	w := newWorker(t, nil)
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/"))
	a.listen(t, "[::]:8080")
	b.listen(t, "[::]:8080")
	for _, other := range []*inhabitant{a, b} {
		got, err := a.greeting(at(other.Address, 8080))
		if want := fmt.Sprintf("%s sees %s", other.spec.Machine, a.Address); err != nil || got != want {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	if want := bourse.PrivateAddress(a.spec.Network, a.spec.Machine); a.Address != want {
		t.Errorf("got address %s, want %s", a.Address, want)
	}
}

func TestDial(t *testing.T) {
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	worker := w.host.mark.resolver()
	for i, c := range []struct{ listen, sees netip.Addr }{
		{netip.IPv6Unspecified(), worker},
		{a.Address, worker},
		{a.IPv4, a.IPv4},
		{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.1")},
		{netip.IPv6Loopback(), netip.IPv6Loopback()},
	} {
		listen, number := c.listen, uint16(1000+i)
		a.listen(t, at(listen, number))
		want := fmt.Sprintf("%s sees %s", a.spec.Machine, c.sees)
		c, err := w.Dial(t.Context(), a.spec.Machine, number)
		if err != nil {
			t.Errorf("connect to a program at %s: %v", listen, err)
			continue
		}
		line, err := readLine(c)
		if line != want || err != nil {
			t.Errorf("greeting of a program at %s: got %q, %v; want %q", listen, line, err, want)
		}
		_ = c.Close()
	}
	if _, err := w.Dial(t.Context(), a.spec.Machine, 999); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("port without a listener: %v, want unavailable", err)
	}
	if _, err := w.Dial(t.Context(), machine(9, "shop", "one/").Machine, 80); bourse.CodeOf(err) != bourse.CodeNotFound {
		t.Errorf("missing machine: %v, want not_found", err)
	}
}

func TestAttachTwice(t *testing.T) {
	w := newWorker(t, nil)
	spec := machine(1, "shop", "one/")
	got := make([]Attachment, 8)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			a, err := w.Attach(t.Context(), spec)
			if err != nil {
				t.Errorf("Attach: %v", err)
			}
			got[i] = a
		})
	}
	wg.Wait()
	for _, a := range got {
		if a.Namespace != got[0].Namespace || a.IPv4 != got[0].IPv4 || a.Address != got[0].Address {
			t.Errorf("attachments differ: %+v and %+v", a, got[0])
		}
	}
	other := spec
	other.Network = "two/"
	if _, err := w.Attach(t.Context(), other); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("Attach in another network: %v, want failed_precondition", err)
	}
	for range 2 {
		if err := w.Detach(t.Context(), spec.Machine); err != nil {
			t.Errorf("Detach: %v", err)
		}
	}
	if _, err := w.Attach(t.Context(), other); err != nil {
		t.Errorf("Attach in another network after Detach: %v", err)
	}
	for _, bad := range []Spec{{}, {Machine: "../../etc/passwd", App: "a", Network: "n"}, {Machine: spec.Machine, App: "a"}, {Machine: spec.Machine, App: "A b", Network: "n"}} {
		if _, err := w.Attach(t.Context(), bad); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if err := w.Detach(t.Context(), "../x"); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("Detach of an invalid id: %v, want invalid", err)
	}
}

func TestManyAtOnce(t *testing.T) {
	w := newWorker(t, nil)
	w.run(t)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			spec := machine(i, "shop", fmt.Sprintf("org:%d", i%3))
			for range 2 {
				if _, err := w.Attach(t.Context(), spec); err != nil {
					t.Errorf("Attach: %v", err)
				}
				if err := w.Detach(t.Context(), spec.Machine); err != nil {
					t.Errorf("Detach: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

func TestIPv4RangeExhausted(t *testing.T) {
	w := newWorker(t, func(c *Config) { c.IPv4 = netip.MustParsePrefix("198.18.7.0/30") })
	a, b := w.attach(t, machine(1, "shop", "one/")), w.attach(t, machine(2, "shop", "one/"))
	if a.IPv4 == b.IPv4 {
		t.Errorf("both machines have address %s", a.IPv4)
	}
	third := machine(3, "shop", "one/")
	if _, err := w.Attach(t.Context(), third); bourse.CodeOf(err) != bourse.CodeUnavailable || !errors.Is(err, errNoAddress) {
		t.Errorf("Attach without a free address: %v, want errNoAddress", err)
	}
	if _, err := os.Stat(w.host.files.path(third.Machine)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the failed Attach left a namespace: %v", err)
	}
	if err := w.Detach(t.Context(), a.spec.Machine); err != nil {
		t.Fatal(err)
	}
	if c := w.attach(t, third); c.IPv4 != a.IPv4 {
		t.Errorf("got address %s, want the only free one, %s", c.IPv4, a.IPv4)
	}
}

func TestTwoWorkersOnOneHost(t *testing.T) {
	small := func(c *Config) { c.IPv4 = netip.MustParsePrefix("198.18.7.0/29") }
	one, two := newWorker(t, small), newWorker(t, small)
	one.run(t)
	two.run(t)
	seen := map[netip.Addr]bool{}
	var last [2]*inhabitant
	for i := range 3 {
		last[0] = one.attach(t, machine(i, "shop", "one/"))
		last[1] = two.attach(t, machine(10+i, "shop", "one/"))
		one.names.hold(last[0].spec)
		two.names.hold(last[1].spec)
		for _, m := range last {
			if seen[m.IPv4] {
				t.Errorf("address %s was assigned twice", m.IPv4)
			}
			seen[m.IPv4] = true
			awaitHost(t, m, "shop.internal")
		}
	}
	before := takeInventory(t, two.cfg.Dir)
	if err := one.Recover(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	after := takeInventory(t, two.cfg.Dir)
	for what, lists := range map[string][2][]string{"links": {before.Links, after.Links}, "tables": {before.Tables, after.Tables}} {
		for _, name := range lists[0] {
			own := strings.Contains(name, string(two.host.mark))
			if kept := strings.Contains(strings.Join(lists[1], "\n"), name); own != kept && strings.Contains(name, "bourse") {
				t.Errorf("%s: %q belongs to the second worker: %t; exists after the first worker has removed its objects: %t", what, name, own, kept)
			}
		}
	}
	awaitHost(t, last[1], "shop.internal")
}

func TestOpenRefusesAClash(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("networks need root")
	}
	newOutside(t)
	n, err := Open(Config{Dir: t.TempDir(), IPv4: netip.MustParsePrefix("203.0.0.0/16")})
	if bourse.CodeOf(err) != bourse.CodeUnavailable || !strings.Contains(err.Error(), "203.0.113.0/24") {
		t.Errorf("Open with an overlapping range: %v, %v; want unavailable, with the network's name", n, err)
	}
	if _, err := Open(Config{Dir: t.TempDir(), IPv4: netip.MustParsePrefix("fd00::/64")}); bourse.CodeOf(err) != bourse.CodeInvalid {
		t.Errorf("Open with an IPv6 range: %v, want invalid", err)
	}
}

// If Open succeeds, CheckHost succeeds, too, even while machines have networks.
func TestCheckHost(t *testing.T) {
	w := newWorker(t, nil)
	before := takeInventory(t, w.cfg.Dir)
	if err := CheckHost(); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(before, takeInventory(t, w.cfg.Dir)); diff != "" {
		t.Errorf("CheckHost changed the host (-before +after):\n%s", diff)
	}
	w.attach(t, machine(1, "shop", "one/"))
	if err := CheckHost(); err != nil {
		t.Errorf("CheckHost with a machine: %v", err)
	}
}

func TestMTUIsThatOfTheWayOut(t *testing.T) {
	newOutside(t)
	up, err := netlink.LinkByName("up0")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetMTU(up, 1380); err != nil {
		t.Fatal(err)
	}
	w := newWorker(t, nil)
	a := w.attach(t, machine(1, "shop", "one/"))
	got, err := inNamespace(a.ns, func() (int, error) {
		link, err := net.InterfaceByName(innerLink)
		if err != nil {
			return 0, err
		}
		return link.MTU, nil
	})
	if err != nil || got != 1380 {
		t.Errorf("got MTU %d, %v; want 1380", got, err)
	}
}

func TestRunEndsUnused(t *testing.T) {
	w := newWorker(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx, &w.names); err != nil {
		t.Error(err)
	}
}
