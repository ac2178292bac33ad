package nats_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/fabric/fabrictest"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestDebian runs the suite over Debian's NATS server.
func TestDebian(t *testing.T) {
	fabrictest.Run(t, func(t *testing.T) fabrictest.Network {
		s := &natsHost{addr: "127.0.0.1", port: freePort(t)}
		s.start(t, "")
		return newNetwork(t, s.url(), false, nil)
	})
}

// TestCluster runs the suite over a cluster of three NATS servers, with the broker and the
// workers distributed among them.
func TestCluster(t *testing.T) {
	servers := make([]*natsHost, 3)
	var routes []string
	first, _ := servertest.Ports(t)
	for i := range servers {
		servers[i] = &natsHost{addr: "127.0.0.1", port: first + 2*i, name: fmt.Sprintf("n%d", i+1), cluster: "c", routing: first + 2*i + 1}
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", servers[i].routing))
	}
	for _, s := range servers {
		s.start(t, fmt.Sprintf("routes: [%s]", strings.Join(routes, ", ")))
	}
	connected(t, servers...)
	fabrictest.Run(t, func(t *testing.T) fabrictest.Network { return spread(t, servers) })
}

// TestSupercluster runs the suite over two clusters connected by a gateway, each in its own
// network namespace. The broker is connected to one of them, and the workers to the other.
func TestSupercluster(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("network namespaces require root")
	}
	here, there := newNamespace(t, 1), newNamespace(t, 2)
	run(t, "ip", "link", "add", "bg0", "netns", here.name, "type", "veth", "peer", "name", "bg1", "netns", there.name)
	for i, s := range []*natsHost{here, there} {
		run(t, "ip", "-n", s.name, "addr", "add", fmt.Sprintf("10.78.9.%d/24", i+1), "dev", fmt.Sprintf("bg%d", i))
		run(t, "ip", "-n", s.name, "link", "set", fmt.Sprintf("bg%d", i), "up")
	}
	const gateways = `{name: "c1", url: "nats://10.78.9.1:7222"}, {name: "c2", url: "nats://10.78.9.2:7222"}`
	for i, s := range []*natsHost{here, there} {
		s.cluster, s.routing = fmt.Sprintf("c%d", i+1), 6222
		s.gateway = fmt.Sprintf(`gateway: {name: %q, listen: "10.78.9.%d:7222", gateways: [%s]}`, s.cluster, i+1, gateways)
		s.start(t, "")
	}
	connected(t, here, there)
	fabrictest.Run(t, func(t *testing.T) fabrictest.Network { return spread(t, []*natsHost{here, there}) })
}

// natsHost is a NATS server from Debian's package.
type natsHost struct {
	name    string // name of the server and of its namespace, if it has one
	addr    string
	port    int
	cluster string // "" means none
	routing int
	gateway string
	inside  bool // whether it runs in the namespace
}

func (s *natsHost) url() string { return fmt.Sprintf("nats://%s:%d", s.addr, s.port) }

// start runs the server until the test ends.
func (s *natsHost) start(t *testing.T, routes string) {
	t.Helper()
	program, err := exec.LookPath("nats-server")
	if err != nil {
		if program, err = exec.LookPath("/usr/sbin/nats-server"); err != nil {
			t.Skip("this host has no nats-server")
		}
	}
	config := fmt.Sprintf("listen: \"%s:%d\"\nserver_name: \"s-%s\"\n", s.addr, s.port, s.name)
	if s.cluster != "" {
		config += fmt.Sprintf("cluster: {name: %q, listen: \"%s:%d\", %s}\n%s\n", s.cluster, s.addr, s.routing, routes, s.gateway)
	}
	file := filepath.Join(t.TempDir(), "nats.conf")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	command := []string{program, "-c", file}
	if s.inside {
		command = append([]string{"ip", "netns", "exec", s.name}, command...)
	}
	c := exec.Command(command[0], command[1:]...)
	if err := c.Start(); err != nil {
		t.Fatalf("nats-server: %v", err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	for end := time.Now().Add(patience); ; {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", net.JoinHostPort(s.addr, fmt.Sprint(s.port)))
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(end) {
			t.Fatalf("nats-server does not listen: %v", err)
		}
	}
}

var namespaces atomic.Int32

// newNamespace creates a network namespace that is reachable from this one, at addresses
// that tests in other processes do not use.
func newNamespace(t *testing.T, n int) *natsHost {
	t.Helper()
	subnet := os.Getpid() % (1 << 12) * 32 // in 100.64.0.0/10, which no worker uses: four networks of 8 addresses
	addr := func(host int) string {
		at := subnet + 8*n + host
		return fmt.Sprintf("100.%d.%d.%d", 64+at>>16, at>>8&0xff, at&0xff)
	}
	name := fmt.Sprintf("bn%d-%d-%d", n, os.Getpid()%10000, namespaces.Add(1))
	ours, theirs := name[:min(len(name), 13)]+"a", "up0"
	run(t, "ip", "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	run(t, "ip", "link", "add", ours, "type", "veth", "peer", "name", theirs, "netns", name)
	run(t, "ip", "addr", "add", addr(1)+"/29", "dev", ours)
	run(t, "ip", "link", "set", ours, "up")
	run(t, "ip", "-n", name, "addr", "add", addr(2)+"/29", "dev", theirs)
	run(t, "ip", "-n", name, "link", "set", theirs, "up")
	run(t, "ip", "-n", name, "link", "set", "lo", "up")
	return &natsHost{name: name, addr: addr(2), port: 4222, inside: true}
}

func run(t *testing.T, command ...string) {
	t.Helper()
	if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
		t.Skipf("%s: %v: %s", strings.Join(command, " "), err, out)
	}
}

// connected waits until messages from one server reach all others.
func connected(t *testing.T, servers ...*natsHost) {
	t.Helper()
	from := open(t, servers[0].url())
	defer from.Close()
	for _, s := range servers[1:] {
		to := open(t, s.url())
		defer to.Close()
		to.Listen(7)
		for end := time.Now().Add(patience); ; {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			c, err := from.Dial(ctx, to.HostPort(7))
			cancel()
			if err == nil {
				c.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s does not find %s: %v", s.url(), servers[0].url(), err)
			}
		}
	}
}

// spread returns a network whose broker is connected to the first server, and whose workers are
// connected to the others.
func spread(t *testing.T, servers []*natsHost) fabrictest.Network {
	n := newNetwork(t, servers[0].url(), true, nil)
	next := 0
	n.place = func() string {
		next++
		return servers[1+next%(len(servers)-1)].url()
	}
	return n
}
