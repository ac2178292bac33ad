package network

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// worker is a Network under test. After the test, the host must be in the same state as before.
type worker struct {
	*Network
	cfg    Config
	names  fakeNames
	before inventory
}

func newWorker(t testing.TB, change func(*Config)) *worker {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("networks need root")
	}
	cfg := Config{Dir: t.TempDir(), Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	w := &worker{cfg: cfg, before: takeInventory(t, cfg.Dir)}
	w.open(t)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := w.Recover(ctx, nil); err != nil {
			t.Errorf("Recover(nil): %v", err)
		}
		if err := w.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		var after inventory
		if !eventually(func() bool { after = takeInventory(t, cfg.Dir); return cmp.Equal(w.before, after) }) {
			t.Errorf("the test left changes on the host (-before +after):\n%s", cmp.Diff(w.before, after))
		}
	})
	return w
}

// open opens the Network, as a restarted daemon does.
func (w *worker) open(t testing.TB) {
	t.Helper()
	n, err := Open(w.cfg)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	w.Network = n
}

// run runs the Network until the test ends.
func (w *worker) run(t testing.TB) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	n := w.Network
	go func() { done <- n.Run(ctx, &w.names) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// attach attaches a machine and returns its inhabitant.
func (w *worker) attach(t testing.TB, spec Spec) *inhabitant {
	t.Helper()
	a, err := w.Attach(t.Context(), spec)
	if err != nil {
		t.Fatalf("Attach %s: %v", spec.Machine, err)
	}
	return inhabit(t, spec, a)
}

// inhabitant acts as a program inside a machine's namespace.
type inhabitant struct {
	Attachment
	spec Spec
	ns   *os.File
}

func inhabit(t testing.TB, spec Spec, a Attachment) *inhabitant {
	t.Helper()
	ns, err := os.Open(a.Namespace)
	if err != nil {
		t.Fatalf("namespace of %s: %v", spec.Machine, err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	return &inhabitant{a, spec, ns}
}

// listen accepts connections at an address in the machine. It sends each client a greeting that
// contains the machine's id and the client's address as seen by the machine.
func (i *inhabitant) listen(t testing.TB, at string) {
	t.Helper()
	listenIn(t, i.ns, at, string(i.spec.Machine))
}

func listenIn(t testing.TB, ns *os.File, at, who string) {
	t.Helper()
	l, err := inNamespace(ns, func() (net.Listener, error) { return net.Listen("tcp", at) })
	if err != nil {
		t.Fatalf("listen at %s in %s: %v", at, who, err)
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(func() { close(ended); _ = l.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { <-ended; _ = c.Close() })
			wg.Go(func() {
				host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
				_, _ = fmt.Fprintf(c, "%s sees %s\n", who, host)
				_, _ = io.Copy(c, c) // then echo
			})
		}
	})
}

// dial connects from inside the machine.
func (i *inhabitant) dial(to string) (net.Conn, error) { return dialIn(i.ns, to) }

func dialIn(ns *os.File, to string) (net.Conn, error) {
	return inNamespace(ns, func() (net.Conn, error) { return net.DialTimeout("tcp", to, time.Second) })
}

// greeting connects and returns the line that it reads.
func (i *inhabitant) greeting(to string) (string, error) {
	c, err := i.dial(to)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.Close() }()
	return readLine(c)
}

func readLine(c net.Conn) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return "", err
	}
	var line []byte
	for one := make([]byte, 1); ; {
		if _, err := c.Read(one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[0])
	}
}

// resolver returns a resolver that uses the machine's resolv.conf, as programs in the
// machine do.
func (i *inhabitant) resolver() *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(_ context.Context, network, _ string) (net.Conn, error) {
		return inNamespace(i.ns, func() (net.Conn, error) { return net.Dial(network, net.JoinHostPort(i.Resolver[0], "53")) })
	}}
}

// outside is a host on the Internet.
type outside struct{ ns *os.File }

// newOutside connects the host to another namespace with a veth pair, which becomes the host's
// default route. The other namespace has no routes to private addresses.
func newOutside(t testing.TB) outside {
	t.Helper()
	ns, err := newNamespace()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(int(ns.Fd()))}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = netlink.LinkDel(pair) })
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
	plumb(t, here, "up0", "203.0.113.1/24", "2001:db8::1/64")
	plumb(t, there, "eth0", "203.0.113.2/24", "2001:db8::2/64")
	for _, end := range []struct {
		nl   *netlink.Handle
		name string
		own  string
	}{{here, "up0", "2001:db8::1"}, {there, "eth0", "2001:db8::2"}} {
		err := poll(func() (bool, error) {
			link, err := end.nl.LinkByName(end.name)
			return err == nil && link.Attrs().OperState == netlink.OperUp, err
		})
		if err := errors.Join(err, awaitAddress(end.nl, netip.MustParseAddr(end.own))); err != nil {
			t.Fatal(err)
		}
	}
	for _, gw := range []string{"203.0.113.2", "2001:db8::2"} {
		route := &netlink.Route{LinkIndex: pair.Attrs().Index, Gw: net.ParseIP(gw)}
		if err := netlink.RouteAdd(route); err != nil {
			t.Fatalf("default route: %v", err)
		}
	}
	return outside{ns}
}

func plumb(t testing.TB, nl *netlink.Handle, name string, addresses ...string) {
	t.Helper()
	link, err := nl.LinkByName(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := nl.LinkSetUp(link); err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			t.Fatal(err)
		}
		if addr.IP.To4() == nil {
			addr.Flags = unix.IFA_F_NODAD
		}
		if err := nl.AddrAdd(link, addr); err != nil {
			t.Fatal(err)
		}
	}
}

// inventory lists the objects on the host, without those in other namespaces.
type inventory struct {
	Links, Addresses, Routes, Tables, Files, Mounts []string
}

func takeInventory(t testing.TB, dir string) inventory {
	t.Helper()
	var v inventory
	links, err := retried(netlink.LinkList)
	if err != nil {
		t.Fatal(err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
		v.Links = append(v.Links, l.Attrs().Name+" "+l.Attrs().Alias)
	}
	addresses, err := retried(func() ([]netlink.Addr, error) { return netlink.AddrList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range addresses {
		if !a.IP.IsLoopback() && !a.IP.IsLinkLocalUnicast() { // the kernel adds these automatically
			v.Addresses = append(v.Addresses, a.IPNet.String())
		}
	}
	routes, err := retried(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_ALL) })
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast() {
			v.Routes = append(v.Routes, fmt.Sprint(r.Dst, " ", names[r.LinkIndex]))
		}
	}
	tables, err := (&nftables.Conn{}).ListTables()
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		v.Tables = append(v.Tables, table.Name)
	}
	if v.Files, err = filepath.Glob(filepath.Join(dir, "ns", "*")); err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if at := strings.Fields(line)[4]; strings.HasPrefix(at, dir) {
			v.Mounts = append(v.Mounts, at)
		}
	}
	for _, list := range []*[]string{&v.Links, &v.Addresses, &v.Routes, &v.Tables, &v.Files, &v.Mounts} {
		slices.Sort(*list)
	}
	return v
}

// eventually waits until a condition is true, and reports whether it became true. It is for changes
// that the kernel or another goroutine makes asynchronously.
func eventually(so func() bool) bool {
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); {
		if so() {
			return true
		}
		time.Sleep(time.Millisecond)
	}
	return so()
}
