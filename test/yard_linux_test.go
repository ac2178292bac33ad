package test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/image/registrytest"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// yard is a cluster in one region whose workers run images. The workers use separate
// namespaces of one real containerd. A real registry contains the images.
type yard struct {
	*testing.T
	api        *machinesapi.Client
	broker     *server
	workers    []*server
	containerd *containerdtest.Server
	registry   *registrytest.Registry
}

// newYard starts a yard. It skips the test if it does not run as root or if there is no
// containerd.
func newYard(t *testing.T, workers int) *yard {
	t.Helper()
	return newYardOf(t, workers, "")
}

// newYardOf returns a yard whose workers run the given program with additional flags. If program is "", they run the
// usual one.
func newYardOf(t *testing.T, workers int, program string, flags ...string) *yard {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers, networks and volumes need root")
	}
	y := &yard{T: t, containerd: containerdtest.New(t), registry: registrytest.Start(t, registrytest.Options{})}
	y.broker = startServer(t, "broker", "serve", "broker", "--listen", "127.0.0.1:0")
	y.api = client(t, y.broker)
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		w, _ := newWorker(t, name, "gru", append([]string{
			"--disk", "40GiB", "--join", y.broker.Addr,
			"--registry-private", "--containerd", y.containerd.Address, "--containerd-namespace", clusterOf(t) + "-" + name,
		}, flags...)...)
		w.Path = program
		y.workers = append(y.workers, w)
	}
	startAll(t, y.workers...)
	eventually(t, waitTimeout, "all servers know each other", func() error { return servertest.Agreed(t.Context(), workers+1, y.api) })
	return y
}

// push pushes an image that contains busybox and additional files, and returns it.
func (y *yard) push(name string, config ocispec.ImageConfig, files ...registrytest.Layer) registrytest.Pushed {
	y.Helper()
	return y.registry.Push(y, name, registrytest.Image{
		Layers: append([]registrytest.Layer{registrytest.Busybox(y)}, files...), Config: config,
	})
}

// order returns an order for a machine with an image.
func (y *yard) order(image string, command ...string) machinesapi.CreateMachine {
	return machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
		Image: image, Guest: &bourse.Guest{MemoryMB: 64}, Restart: &bourse.Restart{Policy: bourse.RestartNo}, Init: bourse.Init{Exec: command},
	}}
}

// run places an order in an app. The order must be filled and the machine started.
func (y *yard) run(app bourse.AppName, order machinesapi.CreateMachine) machinesapi.Machine {
	y.Helper()
	m, err := y.api.Create(y.Context(), app, order, "")
	if err != nil {
		y.Fatalf("order in app %s for a machine with image %s: %v", app, order.Config.Image, err)
	}
	if m.State != bourse.StateStarted && !order.SkipLaunch {
		y.Fatalf("machine %s is %s, want started", m.ID, m.State)
	}
	return m.Machine
}

func (y *yard) destroy(id bourse.MachineID) {
	y.Helper()
	if err := y.api.Destroy(y.Context(), app, id, machinesapi.DestroyMachine{Force: true}, ""); err != nil {
		y.Fatalf("destroy %s: %v", id, err)
	}
}

func (y *yard) restart(id bourse.MachineID) {
	y.Helper()
	if err := y.api.Restart(y.Context(), app, id, machinesapi.RestartMachine{}, ""); err != nil {
		y.Fatalf("restart %s: %v", id, err)
	}
	eventually(y.T, waitTimeout, "machine "+string(id)+" runs again", func() error {
		m, err := y.api.Machine(y.Context(), app, id)
		if err == nil && m.State != bourse.StateStarted {
			err = fmt.Errorf("machine %s is %s, want started", m.ID, m.State)
		}
		return err
	})
}

// sh runs a shell command in a machine and returns its output and exit code.
func (y *yard) sh(app bourse.AppName, id bourse.MachineID, line string) (string, int) {
	y.Helper()
	r, err := y.api.Exec(y.Context(), app, id, machinesapi.ExecMachine{Command: []string{"/bin/sh", "-c", line}, Timeout: 30})
	if err != nil {
		y.Fatalf("in %s, %s: %v", id, line, err)
	}
	return strings.TrimSpace(r.Stdout + r.Stderr), r.ExitCode
}

// httpPort is the port at which machines serve pages.
const httpPort = 8080

// get requests a page from a machine through the API's tunnel.
func (y *yard) get(app bourse.AppName, id bourse.MachineID) (string, error) {
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			tunnel, err := y.api.Tunnel(ctx, app, id, httpPort)
			if err != nil {
				return nil, err
			}
			return tunnelConn{Tunnel: tunnel}, nil
		},
	}
	req, err := http.NewRequestWithContext(y.Context(), http.MethodGet, "http://machine/", nil)
	if err != nil {
		return "", err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	return strings.TrimSpace(body.String()), err
}

// answers waits until a machine serves a text.
func (y *yard) answers(app bourse.AppName, id bourse.MachineID, want string) {
	y.Helper()
	eventually(y.T, waitTimeout, fmt.Sprintf("%s serves a page", id), func() error {
		got, err := y.get(app, id)
		if err == nil && got != want {
			err = fmt.Errorf("the page is %q, want %q", got, want)
		}
		return err
	})
}

// tunnelConn turns a tunnel into a net.Conn.
type tunnelConn struct{ *machinesapi.Tunnel }

func (tunnelConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (tunnelConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (tunnelConn) SetDeadline(time.Time) error      { return nil }
func (tunnelConn) SetReadDeadline(time.Time) error  { return nil }
func (tunnelConn) SetWriteDeadline(time.Time) error { return nil }

// program returns a layer with a program of the host and its shared libraries. It skips the
// test if the program is missing.
func program(t *testing.T, name string) registrytest.Layer {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("%s is not installed on this host: %v", name, err)
	}
	out, err := exec.Command("ldd", path).Output()
	if err != nil {
		t.Fatalf("the libraries of %s: %v", path, err)
	}
	files := []string{path}
	for word := range strings.FieldsSeq(string(out)) {
		if strings.HasPrefix(word, "/") {
			files = append(files, word)
		}
	}
	layer := registrytest.Layer{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		layer[filepath.Clean(file)] = registrytest.File{Data: data, Mode: 0o755}
	}
	return layer
}
