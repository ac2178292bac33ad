package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

var drained = flag.Int("drained", 12, "how many machines the worker has that TestDrainUnderLoad drains")

// A worker with machines of two apps, which proxies send requests to all the time, is
// drained: no request fails, and at the end all are on others.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	drainUnderLoad(t, *drained)
}

func drainUnderLoad(t *testing.T, machines int) {
	hello := filepath.Join(t.TempDir(), "hello")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", hello, "github.com/bourse-dev/bourse/examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("build the machines' program: %v\n%s", err, out)
	}
	d := servertest.StartDev(t, "--regions", "gru", "--workers", "3", "--cpus", "64", "--memory", "64GiB")
	api := d.Client()
	for _, w := range []bourse.WorkerID{"gru-2", "gru-3"} { // all are to be on the first
		if _, err := api.Operator().Cordon(t.Context(), w, true); err != nil {
			t.Fatal(err)
		}
	}
	apps := []bourse.AppName{"one", "two"}
	for _, name := range apps {
		if _, err := api.CreateApp(t.Context(), machinesapi.CreateApp{Name: name, Org: "personal"}); err != nil {
			t.Fatal(err)
		}
		for range machines / len(apps) {
			order := machinesapi.CreateMachine{Region: "gru", Config: &bourse.Config{
				Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Exec: []string{hello}},
				Kept: bourse.Kept{Services: json.RawMessage(`[{"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}]}]`)},
			}}
			if _, err := api.Create(t.Context(), name, order, ""); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, w := range []bourse.WorkerID{"gru-2", "gru-3"} {
		if _, err := api.Operator().Cordon(t.Context(), w, false); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(name bourse.AppName) error {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, d.Proxy+"/", nil)
		if err != nil {
			return err
		}
		req.Host = string(name) + ".localhost"
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err == nil && resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		return err
	}
	for _, name := range apps {
		eventually(t, 30*time.Second, "the proxy serves", func() error { return ask(name) })
	}
	var load sync.WaitGroup
	var asked, failed atomic.Int64
	over := make(chan struct{})
	for i := range 8 {
		load.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-t.Context().Done():
					return
				default:
				}
				asked.Add(1)
				if err := ask(apps[i%len(apps)]); err != nil && t.Context().Err() == nil && failed.Add(1) <= 5 {
					t.Errorf("a request failed during the drain: %v", err)
				}
				pause(t.Context(), 5*time.Millisecond)
			}
		})
	}
	began := time.Now()
	c := exec.CommandContext(t.Context(), servertest.Program, "worker", "drain", "gru-1", "--yes", "--api", d.API)
	out, err := c.CombinedOutput()
	took := time.Since(began)
	close(over)
	load.Wait()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("gru-1  cordoned, %d machines moved, 0 left", machines)) {
		t.Fatalf("drain: %v\n%s", err, out)
	}
	for _, name := range apps {
		list, _, err := api.Machines(t.Context(), name, machinesapi.ListMachines{})
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			if m.Worker == "gru-1" || m.State != bourse.StateStarted || m.Cordoned {
				t.Errorf("machine %s is on %s, %s, cordoned: %v; want it to serve elsewhere", m.ID, m.Worker, m.State, m.Cordoned)
			}
		}
		if len(list) != machines/len(apps) {
			t.Errorf("app %s has %d machines, want %d", name, len(list), machines/len(apps))
		}
	}
	t.Logf("%d machines drained in %s, %d requests meanwhile, %d failed", machines, took.Round(100*time.Millisecond), asked.Load(), failed.Load())
}
