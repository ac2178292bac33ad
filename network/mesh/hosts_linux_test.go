package mesh

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/network"
)

// ownHost is the environment variable that is set in the test process with its own network namespace.
const ownHost = "BOURSE_MESH_TEST_HOST"

// TestMain runs the tests in their own network and mount namespaces. The same program also acts as workers' daemons,
// and runs wireguard-go for them.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "tunnel":
		if err := Serve(context.Background(), os.Args[2], slog.New(slog.NewTextHandler(os.Stderr, nil))); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "daemon":
		if err := runDaemon(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case os.Geteuid() != 0:
		os.Exit(m.Run())
	case os.Getenv(ownHost) != "":
		err := errors.Join(
			unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""),
			os.MkdirAll("/var/run/wireguard", 0o755),
			unix.Mount("none", "/var/run/wireguard", "tmpfs", 0, ""),
		)
		if err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	inner := exec.Command("/proc/self/exe", os.Args[1:]...)
	inner.Env = append(os.Environ(), ownHost+"=1", "GORACE=atexit_sleep_ms=0")
	inner.Stdin, inner.Stdout, inner.Stderr = os.Stdin, os.Stdout, os.Stderr
	inner.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	err := inner.Run()
	if e, ok := errors.AsType[*exec.ExitError](err); ok {
		os.Exit(e.ExitCode())
	}
	if err != nil {
		panic(err)
	}
}

// within calls fn on a thread in another network namespace.
func within[T any](ns *os.File, fn func() (T, error)) (out T, err error) {
	var wg sync.WaitGroup
	wg.Go(func() {
		runtime.LockOSThread() // never unlocked, so that the thread exits
		if err = unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err == nil {
			out, err = fn()
		}
	})
	wg.Wait()
	return out, err
}

func ip(t *testing.T, ns *os.File, words string) {
	t.Helper()
	out, err := within(ns, func() ([]byte, error) { return exec.Command("ip", strings.Fields(words)...).CombinedOutput() })
	if err != nil {
		t.Fatalf("ip %s: %v: %s", words, err, out)
	}
}

// newNamespace returns a network namespace that disappears after the test.
func newNamespace(t *testing.T) *os.File {
	t.Helper()
	var wg sync.WaitGroup
	var ns *os.File
	var err error
	wg.Go(func() {
		runtime.LockOSThread()
		if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
			ns, err = os.Open("/proc/thread-self/ns/net")
		}
	})
	wg.Wait()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	ip(t, ns, "link set lo up")
	return ns
}

// newRouter returns a namespace that routes packets between the hosts connected to it.
func newRouter(t *testing.T) *os.File {
	t.Helper()
	ns := newNamespace(t)
	_, err := within(ns, func() (struct{}, error) {
		return struct{}{}, os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// plug connects a namespace to a router: 10.1.n.2 to 10.1.n.1.
func plug(t *testing.T, ns, router *os.File, n, mtu int) {
	t.Helper()
	name := fmt.Sprintf("h%d", n)
	if _, err := within(router, func() (struct{}, error) {
		return struct{}{}, veth(name, ns, mtu)
	}); err != nil {
		t.Fatal(err)
	}
	ip(t, router, fmt.Sprintf("addr add 10.1.%d.1/24 dev %s", n, name))
	ip(t, router, "link set "+name+" up")
	ip(t, ns, fmt.Sprintf("addr add 10.1.%d.2/24 dev up0", n))
	ip(t, ns, "link set up0 up")
	ip(t, ns, fmt.Sprintf("route add default via 10.1.%d.1", n))
}

// newNAT returns a router that translates the addresses of the hosts connected to it.
func newNAT(t *testing.T, outside *os.File, n int) *os.File {
	t.Helper()
	ns := newRouter(t)
	plug(t, ns, outside, n, 1500)
	_, err := within(ns, func() (struct{}, error) {
		c, err := nftables.New()
		if err != nil {
			return struct{}{}, err
		}
		table := c.AddTable(&nftables.Table{Family: nftables.TableFamilyIPv4, Name: "nat"})
		chain := c.AddChain(&nftables.Chain{
			Name: "out", Table: table, Type: nftables.ChainTypeNAT, Hooknum: nftables.ChainHookPostrouting, Priority: nftables.ChainPriorityNATSource,
		})
		up0 := append([]byte("up0"), make([]byte, unix.IFNAMSIZ-3)...)
		c.AddRule(&nftables.Rule{Table: table, Chain: chain, Exprs: []expr.Any{
			&expr.Meta{Key: expr.MetaKeyOIFNAME, Register: 1}, &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: up0}, &expr.Masq{},
		}})
		return struct{}{}, c.Flush()
	})
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// order is a message to a daemon, and answer is its reply.
type order struct {
	Attach   *network.Spec
	Workers  []Worker
	Machines []Machine
	Laptops  []Laptop
}

type answer struct {
	Namespace string
	Peers     []bourse.MeshPeer
	Err       string
}

// setting describes a daemon. It is stored in the daemon's directory.
type setting struct {
	Self  Worker
	Specs []network.Spec
	View  order // what the view contained when the previous daemon was killed
}

// fakeView is the view of a test daemon.
type fakeView struct {
	mu      sync.Mutex
	got     order
	whole   bool // whether got was received since the daemon started
	changed chan struct{}
}

func (v *fakeView) Members(context.Context, bourse.WorkerID, []string) (Members, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return Members{Workers: v.got.Workers, Machines: v.got.Machines, Laptops: v.got.Laptops}, nil
}

func (v *fakeView) Whole() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.whole
}

func (v *fakeView) Changed() <-chan struct{} { return v.changed }

// fakeNames implements network.Names. Each network has one app, which has the same name as the network.
type fakeNames struct {
	view *fakeView
	mesh *Mesh
}

func appOf(network string) bourse.App {
	org, name, _ := strings.Cut(network, "/")
	return bourse.App{Name: bourse.AppName(name), Org: org, Network: name}
}

func (n fakeNames) App(name bourse.AppName) (bourse.App, bool, error) {
	return appOf("org/" + string(name)), true, nil
}

func (n fakeNames) Apps() ([]bourse.App, error) { return nil, nil }

func (n fakeNames) Machines(app *bourse.App) ([]bourse.Machine, error) {
	members, _ := n.view.Members(context.Background(), "", nil)
	var out []bourse.Machine
	for _, m := range members.Machines {
		if m.Network == app.PrivateNetwork() && (m.Worker == n.mesh.self || n.mesh.Reaches(m.Worker)) {
			out = append(out, bourse.Machine{ID: m.ID, Worker: m.Worker, App: app.Name, State: bourse.StateStarted, PrivateIP: bourse.PrivateAddress(m.Network, m.ID)})
		}
	}
	return out, nil
}

// runDaemon acts as a worker's daemon until it is killed or its stdin is closed.
func runDaemon(dir string) (err error) {
	text, err := os.ReadFile(filepath.Join(dir, "setting"))
	if err != nil {
		return err
	}
	var s setting
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	tunnel := filepath.Join(dir, "mesh")
	nets, err := network.Open(network.Config{Dir: filepath.Join(dir, "network"), Mesh: LinkName(tunnel), Log: log, PooledNamespaces: -1})
	if err != nil {
		return err
	}
	if err := nets.Recover(context.Background(), s.Specs); err != nil {
		return err
	}
	id, err := LoadIdentity(filepath.Join(dir, "key"))
	if err != nil {
		return err
	}
	device, err := Open(Config{Dir: tunnel, Command: []string{"/proc/self/exe", "tunnel"}, Identity: id, Port: 51820, MTU: MTU(nets.MTU()), Log: log})
	if err != nil {
		return err
	}
	view := &fakeView{got: s.View, changed: make(chan struct{}, 1)}
	m := New(s.Self.ID, s.Self.Mesh, device, nets, view, log)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = m.Run(ctx, s.Self.Tag) })
	wg.Go(func() { _ = nets.Run(ctx, fakeNames{view, m}) })
	defer func() {
		cancel()
		wg.Wait()
		err = errors.Join(err, device.Close())
	}()
	out := json.NewEncoder(os.Stdout)
	for in := json.NewDecoder(os.Stdin); ; {
		var o order
		if err := in.Decode(&o); err != nil {
			return nil
		}
		var a answer
		if o.Attach != nil {
			got, err := nets.Attach(ctx, *o.Attach)
			a.Namespace = got.Namespace
			if err != nil {
				a.Err = err.Error()
			}
		}
		if o.Workers != nil {
			view.mu.Lock()
			view.got, view.whole = o, true
			view.mu.Unlock()
			select {
			case view.changed <- struct{}{}:
			default:
			}
		}
		a.Peers = m.Peers()
		if err := out.Encode(a); err != nil {
			return err
		}
	}
}

// host is a worker in its own network namespace.
type host struct {
	t   *testing.T
	ns  *os.File
	dir string
	setting

	daemon *exec.Cmd
	in     io.WriteCloser
	out    *json.Decoder
}

// newHost starts a worker's daemon. endpoint is the endpoint that the worker publishes.
func newHost(t *testing.T, ns *os.File, id bourse.WorkerID, endpoint string) *host {
	t.Helper()
	h := &host{t: t, ns: ns, dir: t.TempDir()}
	key, err := LoadIdentity(filepath.Join(h.dir, "key"))
	if err != nil {
		t.Fatal(err)
	}
	var e netip.AddrPort
	if endpoint != "" {
		e = netip.MustParseAddrPort(endpoint)
	}
	h.Self = Worker{ID: id, Tag: id.Tags()[0], Mesh: key.Announce(id, e)}
	h.start()
	t.Cleanup(func() {
		h.kill()
		_, err := within(ns, func() (struct{}, error) {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			return struct{}{}, Remove(ctx, filepath.Join(h.dir, "mesh"))
		})
		if err != nil {
			t.Errorf("remove the mesh of %s: %v", id, err)
		}
		for _, s := range h.Specs {
			_ = unix.Unmount(filepath.Join(h.dir, "network", "ns", string(s.Machine)), unix.MNT_DETACH)
		}
	})
	return h
}

// start starts the daemon, which adopts the networks and peers of an earlier daemon.
func (h *host) start() {
	h.t.Helper()
	text, err := json.Marshal(h.setting)
	if err == nil {
		err = os.WriteFile(filepath.Join(h.dir, "setting"), text, 0o600)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	h.daemon = exec.Command("/proc/self/exe", "daemon", h.dir)
	h.daemon.Stderr = h.t.Output()
	h.in, _ = h.daemon.StdinPipe()
	out, _ := h.daemon.StdoutPipe()
	h.out = json.NewDecoder(bufio.NewReader(out))
	if _, err := within(h.ns, func() (struct{}, error) { return struct{}{}, h.daemon.Start() }); err != nil {
		h.t.Fatal(err)
	}
}

// kill kills the daemon.
func (h *host) kill() {
	_ = h.daemon.Process.Kill()
	_ = h.daemon.Wait()
}

func (h *host) tell(o order) answer {
	h.t.Helper()
	if o.Workers != nil {
		h.View = o
	}
	var a answer
	err := json.NewEncoder(h.in).Encode(o)
	if err == nil {
		err = h.out.Decode(&a)
	}
	if err == nil && a.Err != "" {
		err = errors.New(a.Err)
	}
	if err != nil {
		h.t.Fatalf("daemon of %s: %v", h.Self.ID, err)
	}
	return a
}

// tunnelPID returns the process id of the host's wireguard-go.
func (h *host) tunnelPID() int {
	h.t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		h.t.Fatal(err)
	}
	want := "tunnel\x00" + filepath.Join(h.dir, "mesh") + "\x00"
	for _, path := range all {
		if line, err := os.ReadFile(path); err == nil && strings.HasSuffix(string(line), want) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			return pid
		}
	}
	return 0
}

// guest is a program in a machine. It sends its machine's id to each client that connects to port 80, and then echoes
// the client's data.
type guest struct {
	Machine
	t  *testing.T
	ns *os.File
}

// attach adds a machine to one of the networks of the organization org.
func (h *host) attach(n int, name string) *guest {
	h.t.Helper()
	g := &guest{t: h.t, Machine: Machine{ID: bourse.MachineID(h.Self.Tag.String() + fmt.Sprintf("%08x", n)), Worker: h.Self.ID, Network: "org/" + name}}
	spec := network.Spec{Machine: g.ID, App: bourse.AppName(name), Network: g.Network}
	a := h.tell(order{Attach: &spec})
	h.Specs = append(h.Specs, spec)
	ns, err := os.Open(a.Namespace)
	if err != nil {
		h.t.Fatal(err)
	}
	g.ns = ns
	l, err := within(ns, func() (net.Listener, error) { return net.Listen("tcp", "[::]:80") })
	if err != nil {
		h.t.Fatal(err)
	}
	var wg sync.WaitGroup
	ended := make(chan struct{})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { <-ended; _ = c.Close() })
			wg.Go(func() {
				defer c.Close()
				_, _ = fmt.Fprintln(c, g.ID)
				_, _ = io.Copy(c, c)
			})
		}
	})
	h.t.Cleanup(func() { close(ended); _ = l.Close(); wg.Wait(); _ = ns.Close() })
	return g
}

func (g *guest) address() netip.Addr { return bourse.PrivateAddress(g.Network, g.ID) }

// dial connects to another machine, and checks that the right machine answers.
func (g *guest) dial(to *guest, timeout time.Duration) (net.Conn, *bufio.Reader, error) {
	c, err := within(g.ns, func() (net.Conn, error) {
		return net.DialTimeout("tcp", netip.AddrPortFrom(to.address(), 80).String(), timeout)
	})
	if err != nil {
		return nil, nil, err
	}
	_ = c.SetDeadline(time.Now().Add(timeout))
	in := bufio.NewReader(c)
	line, err := in.ReadString('\n')
	if err == nil && strings.TrimSpace(line) != string(to.ID) {
		err = fmt.Errorf("got an answer from %s, want %s", line, to.ID)
	}
	if err != nil {
		return nil, nil, errors.Join(err, c.Close())
	}
	g.t.Cleanup(func() { _ = c.Close() })
	return c, in, nil
}

// lookup resolves a name from inside the machine.
func (g *guest) lookup(name string) ([]string, error) {
	r := net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return within(g.ns, func() (net.Conn, error) { return net.Dial("udp", "[fdaa::3]:53") })
	}}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return r.LookupHost(ctx, name)
}

// eventually waits until fn returns nil.
func eventually(t *testing.T, what string, fn func() error) time.Duration {
	t.Helper()
	begun := time.Now()
	for {
		err := fn()
		if err == nil {
			return time.Since(begun)
		}
		if time.Since(begun) > 30*time.Second {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
