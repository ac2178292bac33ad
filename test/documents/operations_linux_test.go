package documents

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/servertest"
)

// TestOperations types the commands in docs/operations.md, which set up a cluster, run a private
// image, reach a host over NATS, perform an upgrade, and add a host by hand.
func TestOperations(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"containerd", "runc", "nats-server"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed on this host", program)
		}
	}
	y := newYard(t, map[string]string{
		"10.0.0.1": "nats.example.com gru-1", "10.0.0.2": "gru-2", "10.0.0.3": "edge-1", "10.0.0.4": "gru-3", "10.0.0.254": "registry.example.com",
	})
	p := y.player(map[string]*terminal{})
	workers := map[string]string{"gru-1": "10.0.0.1", "gru-2": "10.0.0.2", "edge-1": "10.0.0.3"}
	for name, address := range workers {
		p.at[name] = y.host(name, address).first
		y.containerd(name)
	}
	p.at["gru-3"], p.at["own"] = y.host("gru-3", "10.0.0.4").first, y.host("own", "10.0.0.100").first
	for _, host := range p.at {
		host.must("cp " + servertest.Program + " /usr/local/bin/bourse && mkdir -p /run/systemd/system /etc/systemd/system && rm -rf /etc/bourse")
	}
	y.hosts["gru-3"].write(t, "/etc/systemd/system/bourse.service", packagedUnit(t))
	y.registry("10.0.0.254:5000")
	p.play(read(t, "docs/operations.md"))
	for _, id := range []string{"hello", "far"} {
		// Otherwise the container would outlive this test. The broker may not know about
		// the worker yet, because the document has just restarted it.
		p.at["gru-1"].must("until bourse machine destroy --force --yes " + id + "; do sleep 0.1; done")
	}
	for name := range workers { // a supervisor removes its cgroups when it exits
		p.at[name].must("systemctl stop bourse && { ! pgrep -x exe || kill $(pgrep -x exe); } && while pgrep -x exe; do sleep 0.05; done")
	}
	p.at["gru-3"].must("systemctl stop bourse")
}

// packagedUnit returns the unit that the packages install.
func packagedUnit(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../cli/host/bourse.service")
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), "/usr/bin/bourse", "/usr/local/bin/bourse")
}

// containerd starts containerd on a host.
func (y *yard) containerd(name string) {
	y.Helper()
	h := y.hosts[name]
	h.write(y.T, "/etc/containerd/config.toml", `version = 2
disabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
	"io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
`)
	h.first.must("containerd --log-level warn >/run/containerd.log 2>&1 &")
	h.first.must("for i in $(seq 500); do ctr version >/dev/null 2>&1 && break; sleep 0.02; done; ctr version")
}

// registry serves the documents' image at an address of the hub. It forwards connections to
// a registry in this process.
func (y *yard) registry(address string) {
	y.Helper()
	r := registrytest.Start(y, registrytest.Options{})
	r.Push(y, "hello:1", registrytest.Image{
		Layers: []registrytest.Layer{registrytest.Busybox(y)},
		Config: ocispec.ImageConfig{Cmd: []string{"/bin/sh", "-c", "echo hello from a machine; exec sleep 1000"}},
	})
	l := y.listen(address)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { forward(c, r.Host) })
		}
	})
	y.Cleanup(func() {
		_ = l.Close()
		r.Stop()
		wg.Wait()
	})
}

// listen listens at an address in the hub's network namespace.
func (y *yard) listen(address string) net.Listener {
	y.Helper()
	type result struct {
		l   net.Listener
		err error
	}
	got := make(chan result)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", y.hub.cmd.Process.Pid))
		if err == nil {
			err = errors.Join(unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET), ns.Close())
		}
		if err != nil {
			got <- result{err: err}
			return
		}
		l, err := net.Listen("tcp", address)
		got <- result{l, err}
	}()
	r := <-got
	if r.err != nil {
		y.Fatal(r.err)
	}
	return r.l
}

// forward connects to an address and copies data in both directions.
func forward(c net.Conn, address string) {
	defer c.Close()
	to, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	defer to.Close()
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = io.Copy(to, c)
		_ = to.(*net.TCPConn).CloseWrite()
	})
	_, _ = io.Copy(c, to)
	_ = c.Close()
	wg.Wait()
}
