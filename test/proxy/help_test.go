package proxy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

// waitTimeout is the time limit for operations that are fast on an idle host.
const waitTimeout = 60 * time.Second

// house is a cluster of a broker, workers and proxies.
type house struct {
	*testing.T
	api     *machinesapi.Client
	broker  *servertest.Server
	workers []*servertest.Server
	data    []string // the workers' data directories
	proxies []*servertest.Server
}

// newHouse starts a house with the given numbers of workers and proxies, and additional
// arguments for them.
func newHouse(t *testing.T, workers, proxies int, workerArgs, proxyArgs []string) *house {
	t.Helper()
	return newHouseWith(t, workers, proxies, workerArgs, proxyArgs, (*exec.Cmd).Start)
}

// newHouseWith is like newHouse, but uses launch to start processes.
func newHouseWith(t *testing.T, workers, proxies int, workerArgs, proxyArgs []string, launch func(*exec.Cmd) error) *house {
	t.Helper()
	h := &house{T: t}
	h.broker = servertest.New(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")
	h.broker.Launch = launch
	servertest.StartAll(t, h.broker)
	join := []string{"--join", h.broker.Addr}
	h.furnish(workers, proxies, slices.Concat(workerArgs, join), slices.Concat(proxyArgs, join), launch)
	return h
}

// newHouseOverNATS is like newHouse, with servers that reach each other through a NATS server.
func newHouseOverNATS(t *testing.T, workers, proxies int, workerArgs []string) *house {
	t.Helper()
	relay := servertest.New(t, "nats")
	relay.Args = []string{"serve", "nats", "--listen", "127.0.0.1:0", "--cluster", relay.Of, "--ready-file", relay.Ready}
	servertest.StartAll(t, relay)
	over := []string{"--nats", "nats://" + relay.API}
	h := &house{T: t, broker: servertest.New(t, "b1", append([]string{"serve", "broker", "--listen", "127.0.0.1:0"}, over...)...)}
	servertest.StartAll(t, h.broker)
	h.furnish(workers, proxies, slices.Concat(workerArgs, over), over, (*exec.Cmd).Start)
	return h
}

// furnish starts workers and proxies, and waits until all of them are members.
func (h *house) furnish(workers, proxies int, workerArgs, proxyArgs []string, launch func(*exec.Cmd) error) {
	t := h.T
	t.Helper()
	h.api = servertest.Client(t, h.broker)
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		data := filepath.Join(t.TempDir(), name)
		h.data = append(h.data, data)
		h.workers = append(h.workers, servertest.New(t, name, slices.Concat([]string{
			"serve", "worker", "--name", name, "--region", "gru", "--data", data, "--label", "host=" + name,
			"--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral",
		}, workerArgs)...))
	}
	for i := range proxies {
		name := fmt.Sprintf("p%d", i+1)
		h.proxies = append(h.proxies, servertest.New(t, name, slices.Concat([]string{
			"serve", "proxy", "--name", name, "--region", "gru", "--drain", "1s",
			"--http", "127.0.0.1:0=any", "--https", "127.0.0.1:0=any", "--self-signed",
		}, proxyArgs)...))
	}
	for _, s := range slices.Concat(h.workers, h.proxies) {
		s.Launch = launch
	}
	servertest.StartAll(t, slices.Concat(h.workers, h.proxies)...)
	h.agreed()
}

// agreed waits until all servers are members and have the same view.
func (h *house) agreed() {
	h.Helper()
	h.eventually("all servers know each other", func() error { return servertest.Agreed(h.Context(), 1+len(h.workers)+len(h.proxies), h.api) })
}

// eventually calls ask until it returns no error. It fails the test at the time limit.
func (h *house) eventually(what string, ask func() error) {
	h.Helper()
	var err error
	if !servertest.Within(waitTimeout, func() bool { err = ask(); return err == nil }) {
		h.Fatalf("%s: timed out after %v: %v", what, waitTimeout, err)
	}
}

// Service ports.
const (
	webServices = `[{"protocol":"tcp","autostart":true,"autostop":"stop","ports":[
		{"port":80,"handlers":["http"]},{"port":443,"handlers":["tls","http"]}]}]`
	grpcServices = `[{"protocol":"tcp","autostart":true,"autostop":"stop","ports":[
		{"port":443,"handlers":["tls","http"],"tls_options":{"alpn":["h2"]},"http_options":{"h2_backend":true}}]}]`
	echoServices = `[{"protocol":"tcp","autostart":true,"autostop":"stop","ports":[{"port":7}]}]`
)

// order returns an order for a machine of the given kind, which is started on demand and
// stopped when it is idle.
func (h *house) order(kind string) machinesapi.CreateMachine {
	h.Helper()
	self, err := os.Executable()
	if err != nil {
		h.Fatal(err)
	}
	services := map[string]string{kindWeb: webServices, kindGRPC: grpcServices, kindEcho: echoServices}[kind]
	c := &bourse.Config{ // the memory suffices for thousands of connections in a program with the race detector
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 1024}, Env: map[string]string{machineVariable: kind},
		Init: bourse.Init{Exec: []string{self}},
	}
	c.Services = json.RawMessage(services)
	return machinesapi.CreateMachine{Region: "gru", Config: c}
}

// app creates an app if it does not exist.
func (h *house) app(name bourse.AppName) {
	h.Helper()
	if _, err := h.api.CreateApp(h.Context(), machinesapi.CreateApp{Name: name}); err != nil && bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		h.Fatalf("app %s: %v", name, err)
	}
}

// create places an order for a machine that is not started, and returns its id.
func (h *house) create(app bourse.AppName, order machinesapi.CreateMachine) bourse.MachineID {
	h.Helper()
	h.app(app)
	order.SkipLaunch = true
	m, err := h.api.Create(h.Context(), app, order, "")
	if err != nil {
		h.Fatalf("order in app %s: %v", app, err)
	}
	return m.ID
}

// run places an order for a machine that is started on the given worker.
func (h *house) run(app bourse.AppName, order machinesapi.CreateMachine, worker string) machinesapi.Machine {
	h.Helper()
	h.app(app)
	order.Config.Requirements = bourse.Requirements{"host": {Label: worker}}
	m, err := h.api.Create(h.Context(), app, order, "")
	if err != nil {
		h.Fatalf("order in app %s: %v", app, err)
	}
	return m.Machine
}

// stop stops a machine.
func (h *house) stop(app bourse.AppName, id bourse.MachineID) {
	h.Helper()
	if err := h.api.Stop(h.Context(), app, id, machinesapi.StopMachine{}, ""); err != nil {
		h.Fatalf("stop machine %s: %v", id, err)
	}
	h.eventually("machine "+string(id)+" is stopped", func() error {
		m, err := h.api.Machine(h.Context(), app, id)
		if err == nil && m.State != bourse.StateStopped {
			err = fmt.Errorf("the machine is %s, want stopped", m.State)
		}
		return err
	})
}

// machine returns a machine as the API reports it.
func (h *house) machine(app bourse.AppName, id bourse.MachineID) machinesapi.Machine {
	h.Helper()
	m, err := h.api.Machine(h.Context(), app, id)
	if err != nil {
		h.Fatalf("machine %s: %v", id, err)
	}
	return m
}

// get requests a URL with a nonce, and returns the machine's reply.
func get(client *http.Client, url, host, nonce string) (reply, error) {
	req, err := http.NewRequest(http.MethodGet, url, nil)
	if err != nil {
		return reply{}, err
	}
	req.Host = host
	req.Header.Set(headerNonce, nonce)
	return send(client, req)
}

// send sends a request, and returns the machine's reply.
func send(client *http.Client, req *http.Request) (r reply, err error) {
	resp, err := client.Do(req)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return r, err
	}
	if resp.StatusCode != http.StatusOK {
		return r, &statusError{resp.StatusCode, string(text)}
	}
	return r, json.Unmarshal(text, &r)
}

// statusError is the error for a reply that does not come from a machine.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return fmt.Sprintf("%d: %s", e.status, e.text) }

// routed waits until a proxy routes to an app, and returns the first reply. Before that,
// the proxy rejects requests without starting a machine.
func (h *house) routed(client *http.Client, url, host string) (first reply) {
	h.Helper()
	h.eventually("the proxy knows "+host, func() (err error) {
		first, err = get(client, url, host, "first")
		if s, ok := errors.AsType[*statusError](err); ok && s.status != http.StatusNotFound {
			h.Fatalf("first reply of %s: %v, want 200 or 404", host, err)
		}
		return err
	})
	return first
}

// processesOf returns the ids of the processes whose command line contains the mark.
func processesOf(mark string) (pids []int) {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline") // empty on hosts without /proc
	for _, f := range files {
		line, err := os.ReadFile(f)
		if pid, numeric := strconv.Atoi(strings.Split(f, "/")[2]); err == nil && numeric == nil && strings.Contains(string(line), mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}
