package deploy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/deploy/run"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// waitTimeout is the time limit for operations that are fast on an idle host.
const waitTimeout = 60 * time.Second

// house is a cluster of a broker, two workers and a proxy.
type house struct {
	*testing.T
	api     *machinesapi.Client
	broker  *servertest.Server
	workers []*servertest.Server
	proxy   *servertest.Server
	client  *http.Client // sends requests like users of apps
}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{T: t, broker: servertest.Start(t, "b1", "serve", "broker", "--listen", "127.0.0.1:0")}
	h.api = servertest.Client(t, h.broker)
	for i := range 2 {
		name := fmt.Sprintf("w%d", i+1)
		h.workers = append(h.workers, servertest.New(t, name, "serve", "worker", "--name", name, "--region", "gru", "--data", filepath.Join(t.TempDir(), name),
			"--label", "host="+name, "--cpus", "1000", "--memory", "1TiB", "--disk", "1TiB", "--ephemeral", "--join", h.broker.Addr))
	}
	h.proxy = servertest.New(t, "p1", "serve", "proxy", "--name", "p1", "--region", "gru", "--drain", "1s", "--http", "127.0.0.1:0=any", "--join", h.broker.Addr)
	servertest.StartAll(t, append(slices.Clone(h.workers), h.proxy)...)
	h.eventually("all servers know each other", func() error { return servertest.Agreed(h.Context(), 4, h.api) })
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	t.Cleanup(transport.CloseIdleConnections)
	h.client = &http.Client{Transport: transport, Timeout: waitTimeout}
	return h
}

// in returns the house for a subtest.
func (h *house) in(t *testing.T) *house {
	other := *h
	other.T = t
	return &other
}

func (h *house) eventually(what string, ask func() error) {
	h.Helper()
	var err error
	if !servertest.Within(waitTimeout, func() bool { err = ask(); return err == nil }) {
		h.Fatalf("%s: timed out after %v: %v", what, waitTimeout, err)
	}
}

// config returns the config of a machine that serves its version.
func config(tb testing.TB, version string) *bourse.Config {
	tb.Helper()
	self, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	c := &bourse.Config{Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 256}, Env: map[string]string{machineVariable: version}}
	c.Init.Exec = []string{self}
	grace := "30s" // the machine receives requests as soon as it has started, so a failed early check must not exclude it
	if version == brokenVersion {
		grace = "1s"
	}
	c.Services = json.RawMessage(`[{"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}],` +
		`"checks":[{"type":"http","path":"/healthy","interval":"1s","timeout":"30s","grace_period":"` + grace + `"}]}]`)
	return c
}

// app creates an app with machines of version v1, waits until the proxy serves it, and
// returns its release.
func (h *house) app(name bourse.AppName, machines int) release.Release {
	h.Helper()
	if _, err := h.api.CreateApp(h.Context(), machinesapi.CreateApp{Name: name}); err != nil {
		h.Fatalf("app %s: %v", name, err)
	}
	first := h.release(name)
	if result, err := h.run(h.plan(wanted(h, name, "v1", deploy.Immediate, machines), first), run.Options{Release: first.ID}); err != nil {
		h.Fatalf("first deploy of app %s: %v, %+v", name, err, result)
	}
	h.eventually("app "+string(name)+" is served", func() error {
		_, err := h.ask(name)
		return err
	})
	return first
}

// spread checks that the machines of an app are on all workers, for tests that depend on
// it. On a busy host, a worker whose quote is late gets no machine.
func (h *house) spread(name bourse.AppName) {
	h.Helper()
	on := map[bourse.WorkerID]int{}
	for _, m := range h.machines(name) {
		on[m.Worker]++
	}
	if len(on) != len(h.workers) {
		h.Errorf("the machines of app %s are on the workers %v, want %d workers", name, on, len(h.workers))
	}
}

// ask requests an app's version through the proxy.
func (h *house) ask(app bourse.AppName) (string, error) {
	req, err := http.NewRequest(http.MethodGet, "http://"+h.proxy.Web[0]+"/", nil)
	if err != nil {
		return "", err
	}
	req.Host = string(app) + ".localhost"
	resp, err := h.client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %s, want 200: %s", resp.Status, text)
	}
	return string(text), err
}

// machines returns an app's machines sorted by id, without destroyed ones.
func (h *house) machines(app bourse.AppName) []machinesapi.Machine {
	h.Helper()
	list, silent, err := h.api.Machines(h.Context(), app, machinesapi.ListMachines{})
	if err != nil || len(silent) > 0 {
		h.Fatalf("list machines of %s: %v; workers %v did not answer", app, err, silent)
	}
	slices.SortFunc(list, func(a, b machinesapi.Machine) int { return strings.Compare(string(a.ID), string(b.ID)) })
	return list
}

// shape describes an app's machines, without properties that differ between deploys.
func (h *house) shape(app bourse.AppName) string {
	h.Helper()
	var out []string
	for _, m := range h.machines(app) {
		out = append(out, fmt.Sprintf("%s %s cordoned=%v", m.State, m.Config.Env[machineVariable], m.Cordoned))
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

// run executes a plan.
func (h *house) run(plan deploy.Plan, opts run.Options) (run.Result, error) {
	h.Helper()
	opts.Owner = h.Name()
	if opts.Wait == 0 {
		opts.Wait = waitTimeout
	}
	return run.Run(h.Context(), run.NewAPI(h.api, plan.App), plan, opts)
}

// load sends requests to an app at a constant rate, whether or not they are answered.
type load struct {
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	asked    int
	versions map[string]int
	failed   []error
}

// rate is the number of requests per second to an app while it is changed.
const rate = 50

func (h *house) load(app bourse.AppName) *load {
	l := &load{stop: make(chan struct{}), versions: map[string]int{}}
	l.done.Go(func() {
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for {
			select {
			case <-l.stop:
				return
			case <-tick.C:
				l.done.Go(func() {
					began := time.Now()
					version, err := h.ask(app)
					l.mu.Lock()
					defer l.mu.Unlock()
					l.asked++
					if err != nil {
						l.failed = append(l.failed, fmt.Errorf("at %s: %w", began.Format(time.StampMilli), err))
						return
					}
					l.versions[version]++
				})
			}
		}
	})
	return l
}

// end stops sending requests and reports those that failed.
func (l *load) end(t *testing.T) {
	t.Helper()
	close(l.stop)
	l.done.Wait()
	for _, err := range l.failed[:min(len(l.failed), 5)] {
		t.Error(err)
	}
	if len(l.failed) > 0 {
		t.Errorf("%d of %d requests failed, want none", len(l.failed), l.asked)
	}
	t.Logf("%d requests, answered by %v", l.asked, l.versions)
}
