package test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// natsd is a NATS server: the program nats-server.
type natsd struct {
	t             *testing.T
	program, host string
	port          string
	cmd           *exec.Cmd
}

func (n *natsd) url() string { return "nats://" + net.JoinHostPort(n.host, n.port) }

// startNATS runs a NATS server at an address until the test ends.
func startNATS(t *testing.T, host string) *natsd {
	t.Helper()
	program, err := exec.LookPath("nats-server")
	if err != nil {
		t.Skipf("nats-server is not installed on this host: %v", err)
	}
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", host+":0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	n := &natsd{t: t, program: program, host: host, port: port}
	n.start()
	t.Cleanup(n.kill)
	return n
}

// start starts or restarts the server. It uses the same port each time.
func (n *natsd) start() {
	n.t.Helper()
	n.cmd = exec.Command(n.program, "-a", n.host, "-p", n.port)
	if err := n.cmd.Start(); err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, waitTimeout, "NATS listens", func() error {
		c, err := new(net.Dialer).DialContext(n.t.Context(), "tcp", net.JoinHostPort(n.host, n.port))
		if err == nil {
			c.Close()
		}
		return err
	})
}

func (n *natsd) kill() {
	_ = n.cmd.Process.Kill() // the server may have exited already
	_ = n.cmd.Wait()
}

// TestDialOutOnly runs two workers behind firewalls, which can only open connections. They run
// containers for a broker that they can reach only through a NATS server. The test follows output,
// runs commands, copies files in both directions, and moves a volume from one worker to the other.
func TestDialOutOnly(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("containers and networks need root")
	}
	f := newFactory(t)
	url := startNATS(t, f.outside).url()
	y := &yard{T: t, containerd: containerdtest.New(t), registry: registrytest.Start(t, registrytest.Options{Address: f.outside + ":0"})}
	y.broker = startServer(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0", "--nats", url, "--insecure")
	y.api = client(t, y.broker)
	for _, name := range []string{"w1", "w2"} {
		w, _ := newWorker(t, name, "gru", "--disk", "40GiB", "--nats", url, "--insecure", "--registry-http", y.registry.Host,
			"--registry-private", "--containerd", y.containerd.Address, "--containerd-namespace", clusterOf(t)+"-"+name)
		w.Launch = f.launch
		y.workers = append(y.workers, w)
	}
	startAll(t, y.workers...)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), 3, y.api) })
	y.listensNowhere()

	image := y.push("count:1", ocispec.ImageConfig{Cmd: []string{"/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo line $i; sleep 0.05; done"}})
	m := y.run(app, y.order(image.Ref()))
	for i, l := range y.lines(m.ID, 40) {
		if want := fmt.Sprintf("line %d", i+1); l != want {
			t.Fatalf("line %d is %q, want %q", i+1, l, want)
		}
	}
	if got, code := y.sh(app, m.ID, "echo hello; exit 3"); got != "hello" || code != 3 {
		t.Errorf("exec printed %q and exited with %d, want hello and 3", got, code)
	}
	y.copies(m.ID)
	y.page()
	y.movesAVolume()
}

// listensNowhere checks that no worker has an open port.
func (y *yard) listensNowhere() {
	y.Helper()
	for _, w := range y.workers {
		for _, file := range []string{"tcp", "tcp6", "udp", "udp6"} {
			text, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", w.Cmd.Process.Pid, file))
			if err != nil {
				y.Fatal(err)
			}
			for line := range strings.Lines(string(text)) {
				if words := strings.Fields(line); len(words) > 3 && words[3] == "0A" {
					y.Errorf("a process listens in the namespace of %s, want none: %s", w.Name, line)
				}
			}
		}
	}
}

// copies copies a file of 16 MiB into a machine and back.
func (y *yard) copies(id bourse.MachineID) {
	y.Helper()
	file := make([]byte, 16<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(file)
	back, exit := y.pipe(id, "cat > /tmp/file && cat /tmp/file", file)
	if exit.Code != 0 || sha256.Sum256(back) != sha256.Sum256(file) {
		y.Errorf("%d of %d bytes were copied back, exit %+v; want the same bytes and code 0", len(back), len(file), exit)
	}
}

func (y *yard) pipe(id bourse.MachineID, line string, in []byte) (out []byte, exit bourse.Exit) {
	y.Helper()
	s, err := y.api.ExecStream(y.Context(), app, id, machinesapi.ExecStart{Command: []string{"/bin/sh", "-c", line}, Stdin: true})
	if err != nil {
		y.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		_, _ = s.Write(in) // the check of the data that is copied back detects errors
		_ = s.CloseWrite()
	})
	var got bytes.Buffer
	exit, err = s.Copy(&got, io.Discard)
	wg.Wait()
	if err != nil {
		y.Errorf("%s: %v", line, err)
	}
	return got.Bytes(), exit
}

// page sends a request to a server in a machine through the API's tunnel.
func (y *yard) page() {
	y.Helper()
	web := y.push("web:1", server80(httpd...), page("from the factory"))
	m := y.run(app, y.order(web.Ref()))
	y.answers(app, m.ID, "from the factory")
}

// movesAVolume forks a volume from one worker to the other.
func (y *yard) movesAVolume() {
	y.Helper()
	size := int64(1)
	v, err := y.api.Volumes(app).Create(y.Context(), machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: &size}, "")
	if err != nil {
		y.Fatal(err)
	}
	image := y.push("idle:1", ocispec.ImageConfig{Cmd: []string{"/bin/sleep", "1000"}})
	m := y.run(app, y.withVolume(image.Ref(), v.ID))
	if out, code := y.sh(app, m.ID, "head -c 20000000 /dev/urandom > /data/file; sync; sha256sum /data/file"); code != 0 {
		y.Fatalf("write to the volume: %s", out)
	}
	want, _ := y.sh(app, m.ID, "sha256sum < /data/file")
	fork := y.filled(machinesapi.CreateVolume{Name: "data", Region: "gru", Source: v.ID})
	there := y.run(app, y.withVolume(image.Ref(), fork.ID))
	if got, _ := y.sh(app, there.ID, "sha256sum < /data/file"); got != want {
		y.Errorf("the fork's file has the checksum %s, want %s", got, want)
	}
	if fork.ID.Tag() == v.ID.Tag() {
		y.Error("the fork is on the same worker as its source, want another one")
	}
}

// TestTwoNetworks has one worker on NATS and one that is not. A broker on both networks
// must fill orders on either worker, list both, and notice if either is lost.
func TestTwoNetworks(t *testing.T) {
	t.Parallel()
	url := startNATS(t, "127.0.0.1").url()
	direct := startServer(t, "b2", "serve", "broker", "--listen", "127.0.0.1:0")
	there, _ := newWorker(t, "w-there", "gru", "--nats", url)
	here, _ := newWorker(t, "w-here", "gru", "--join", direct.Addr)
	both := newServer(t, "both", "serve", "broker", "--listen", "127.0.0.1:0", "--nats", url, "--join", direct.Addr)
	startAll(t, there, here, both)
	api := client(t, both)
	eventually(t, waitTimeout, "both workers are known", func() error {
		list, err := api.Workers(t.Context())
		if err == nil && len(list) != 2 {
			err = fmt.Errorf("the broker lists %d workers, want 2", len(list))
		}
		return err
	})
	mark := "bourse-two-networks-" + fmt.Sprint(time.Now().UnixNano())
	for _, name := range []string{"w-there", "w-here"} {
		var m machinesapi.CreatedMachine
		order, in := bourse.NewOrderID(), on(name, sleeper("gru", mark))
		eventually(t, waitTimeout, "an order is filled", func() (err error) { // the broker may know a worker before it can reach it
			m, err = api.Create(t.Context(), app, in, order)
			return err
		})
		if got, err := api.Machine(t.Context(), app, m.ID); err != nil || got.State != bourse.StateStarted {
			t.Errorf("machine on worker %s: %s, %v; want started", name, got.State, err)
		}
	}
	eventually(t, waitTimeout, "both machines are listed", func() error {
		list, _, err := api.Machines(t.Context(), app, machinesapi.ListMachines{})
		if err == nil && len(list) != 2 {
			err = fmt.Errorf("the broker lists %d workers, want 2", len(list))
		}
		return err
	})
	if err := there.Kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, waitTimeout, "the worker on NATS is lost", func() error {
		list, err := api.Workers(t.Context())
		if err == nil && (len(list) != 1 && list[0].Status == machinesapi.WorkerOK && list[1].Status == machinesapi.WorkerOK) {
			err = fmt.Errorf("the broker lists %+v", list)
		}
		return err
	})
	if _, err := api.Create(t.Context(), app, on("w-here", sleeper("gru", mark)), ""); err != nil {
		t.Errorf("order while the other worker is lost: %v", err)
	}
	if err := there.Start(); err != nil { // restart it, so that it destroys its machines at the end of the test
		t.Fatal(err)
	}
}
