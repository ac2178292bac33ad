package test

import (
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/internal/servertest"
	"github.com/bourse-dev/bourse/machinesapi"
)

var drained = flag.Int("drained", 12, "number of machines on the worker that TestDrainUnderLoad drains; a tenth of them, and at least 2, have volumes")

// TestDrainUnderLoad drains a worker with machines of two apps, some of which have volumes,
// while proxies send them requests. No request may fail. Afterwards all machines must be on
// other workers, each volume must contain the data that its machine wrote last, and the
// worker must be empty. Once it is uncordoned, it must accept orders again.
func TestDrainUnderLoad(t *testing.T) {
	t.Parallel()
	h := newHerd(t)
	h.fill(*drained, max(2, *drained/10))
	over := h.load()
	began := time.Now()
	out, err := exec.CommandContext(t.Context(), servertest.Program, "worker", "drain", "gru-1", "--yes", "--api", h.dev.API).CombinedOutput()
	took := time.Since(began)
	asked, failed := over()
	if err != nil || !strings.Contains(string(out), fmt.Sprintf("gru-1  cordoned, %d machines moved, 0 left\n", *drained)) {
		t.Fatalf("drain: %v, want %d machines moved and none left:\n%s", err, *drained, out)
	}
	h.moved(*drained)
	h.remove(string(out))
	h.emptied()
	t.Logf("%d machines drained in %s, %d of them with volumes; %d requests during the drain, %d failed", *drained, took.Round(100*time.Millisecond), len(h.volumes), asked, failed)
}

// herd is a set of machines of two apps on the worker gru-1 of a dev cluster.
type herd struct {
	*testing.T
	dev     *servertest.Dev
	api     *machinesapi.Client
	apps    []bourse.AppName
	hello   string                               // path of the machines' program
	data    string                               // path at which machines mount their volumes
	volumes map[bourse.MachineID]bourse.VolumeID // volumes by the machine that first used them
	free    bourse.VolumeID                      // volume without a machine; "" if the host supports no volumes
}

func newHerd(t *testing.T) *herd {
	t.Helper()
	h := &herd{T: t, apps: []bourse.AppName{"one", "two"}, data: t.TempDir(), volumes: map[bourse.MachineID]bourse.VolumeID{}}
	h.hello = filepath.Join(t.TempDir(), "hello")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", h.hello, "github.com/bourse-dev/bourse/examples/hello").CombinedOutput(); err != nil {
		t.Fatalf("build the machines' program: %v\n%s", err, out)
	}
	h.dev = servertest.StartDev(t, "--regions", "gru", "--workers", "3", "--cpus", "64", "--memory", "64GiB")
	h.api = h.dev.Client()
	return h
}

// only makes gru-1 the only worker that accepts orders if alone is true. Otherwise, it makes all workers accept orders
// again.
func (h *herd) only(alone bool) {
	h.Helper()
	for _, w := range []bourse.WorkerID{"gru-2", "gru-3"} {
		if _, err := h.api.Operator().Cordon(h.Context(), w, alone); err != nil {
			h.Fatal(err)
		}
	}
}

// fill creates machines on gru-1, gives the first ones a volume, and waits until the proxy
// serves both apps.
func (h *herd) fill(machines, volumes int) {
	h.Helper()
	w, err := h.api.Worker(h.Context(), "gru-1")
	if err != nil || w.Facts == nil {
		h.Fatalf("worker gru-1: %v, facts %v", err, w.Facts)
	}
	if w.Facts.Labels["volume"] == "" {
		if os.Geteuid() == 0 {
			h.Error("the worker runs as root, but does not support volumes on this host")
		}
		h.Log("testing without volumes, because this host does not support them")
		volumes = 0
	}
	h.only(true)
	for _, name := range h.apps {
		if _, err := h.api.CreateApp(h.Context(), machinesapi.CreateApp{Name: name, Org: "personal"}); err != nil {
			h.Fatal(err)
		}
	}
	for i := range machines {
		h.create(h.apps[i%len(h.apps)], i < volumes)
	}
	if volumes > 0 {
		h.free = h.volume(h.apps[0])
	}
	h.only(false)
	for _, name := range h.apps {
		eventually(h.T, waitTimeout, "the proxy serves", func() error { return h.ask(name) })
	}
}

// diary is a script that runs $HELLO and appends a line to a file in $DATA when it starts
// and just before it exits.
const diary = `echo "began $FLY_MACHINE_ID" >> "$DATA/diary"
trap 'kill $p; wait $p; echo "ended $FLY_MACHINE_ID" >> "$DATA/diary"; exit 0' INT TERM
"$HELLO" & p=$!
wait $p`

func (h *herd) volume(name bourse.AppName) bourse.VolumeID {
	h.Helper()
	v, err := h.api.Volumes(name).Create(h.Context(), machinesapi.CreateVolume{Name: "data", Region: "gru", SizeGB: new(int64(1)), UniqueZone: new(false)}, "")
	if err != nil {
		h.Fatal(err)
	}
	return v.ID
}

func (h *herd) create(name bourse.AppName, mounts bool) {
	h.Helper()
	config := &bourse.Config{
		Image: bourse.ImageHost, Guest: &bourse.Guest{MemoryMB: 64}, Init: bourse.Init{Exec: []string{h.hello}},
		StoredConfig: bourse.StoredConfig{Services: json.RawMessage(`[{"protocol":"tcp","ports":[{"port":80,"handlers":["http"]}]}]`)},
	}
	if mounts {
		config.Mounts = []bourse.Mount{{Volume: h.volume(name), Path: h.data}}
		config.Env = map[string]string{"DATA": h.data, "HELLO": h.hello}
		config.Init.Exec = []string{"/bin/sh", "-c", diary}
	}
	m, err := h.api.Create(h.Context(), name, machinesapi.CreateMachine{Region: "gru", Config: config}, "")
	if err != nil || m.Worker != "gru-1" {
		h.Fatalf("machine %s on %s: %v, want it on gru-1", m.ID, m.Worker, err)
	}
	if mounts {
		h.volumes[m.ID] = config.Mounts[0].Volume
	}
}

// ask sends a request to an app and checks the reply.
func (h *herd) ask(name bourse.AppName) error {
	req, err := http.NewRequestWithContext(h.Context(), http.MethodGet, h.dev.Proxy+"/", nil)
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
		err = fmt.Errorf("status %s, want 200: %s", resp.Status, text)
	}
	return err
}

// load sends requests continuously until end is called. end returns the numbers of requests
// and of failed requests.
func (h *herd) load() (end func() (asked, failed int64)) {
	var load sync.WaitGroup
	var asked, failed atomic.Int64
	over := make(chan struct{})
	for i := range 8 {
		load.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-h.Context().Done():
					return
				default:
				}
				asked.Add(1)
				if err := h.ask(h.apps[i%len(h.apps)]); err != nil && h.Context().Err() == nil && failed.Add(1) <= 5 {
					h.Errorf("a request failed during the drain: %v", err)
				}
				pause(h.Context(), 5*time.Millisecond)
			}
		})
	}
	return func() (int64, int64) {
		close(over)
		load.Wait()
		return asked.Load(), failed.Load()
	}
}

// moved checks that the given number of machines serve on other workers, and that volumes
// contain the data written before.
func (h *herd) moved(machines int) {
	h.Helper()
	diaries := 0
	for _, name := range h.apps {
		list, _, err := h.api.Machines(h.Context(), name, machinesapi.ListMachines{})
		if err != nil {
			h.Fatal(err)
		}
		machines -= len(list)
		for _, m := range list {
			if m.Worker == "gru-1" || m.State != bourse.StateStarted || m.Cordoned {
				h.Errorf("machine %s is on %s, state %s, cordoned: %v; want it to serve on another worker", m.ID, m.Worker, m.State, m.Cordoned)
			}
			former := bourse.MachineID(m.Config.Metadata[deploy.KeyReplaces])
			if h.volumes[former] == "" {
				continue
			}
			diaries++
			want := fmt.Sprintf("began %s\nended %s\nbegan %s\n", former, former, m.ID)
			got, err := h.api.Exec(h.Context(), name, m.ID, machinesapi.ExecMachine{Command: []string{"/bin/cat", h.data + "/diary"}, Timeout: 30})
			if err != nil || got.Stdout != want {
				h.Errorf("the volume of machine %s contains %q, %v, want %q", m.ID, got.Stdout, err, want)
			}
		}
	}
	if machines != 0 || diaries != len(h.volumes) {
		h.Errorf("%d machines are missing, want none; %d have a volume that was moved, want %d", machines, diaries, len(h.volumes))
	}
}

// remove checks that the drain's output contains a command that destroys the unused volume
// and no other volume. It then runs the command.
func (h *herd) remove(said string) {
	h.Helper()
	_, command, found := strings.Cut(said, "1 volume is left, with its data; to remove it: bourse ")
	if found != (h.free != "") || found && strings.TrimSpace(command) != fmt.Sprintf("volume destroy -a %s %s", h.apps[0], h.free) {
		h.Fatalf("want remaining volume %q, but the drain printed\n%s", h.free, said)
	}
	if !found {
		return
	}
	args := append(strings.Fields(command), "--yes", "--api", h.dev.API)
	if out, err := exec.CommandContext(h.Context(), servertest.Program, args...).CombinedOutput(); err != nil {
		h.Fatalf("remove the remaining volume: %v\n%s", err, out)
	}
}

// emptied checks that gru-1 has no machines or volumes, and that it accepts orders after it
// is uncordoned.
func (h *herd) emptied() {
	h.Helper()
	left, _, err := h.api.Machines(h.Context(), "", machinesapi.ListMachines{Worker: "gru-1"})
	if err != nil || len(left) > 0 {
		h.Errorf("worker gru-1 has %d machines, %v, want none", len(left), err)
	}
	for _, name := range h.apps {
		list, _, err := h.api.Volumes(name).List(h.Context())
		for _, v := range list {
			if err == nil && v.Worker == "gru-1" {
				err = fmt.Errorf("volume %s is still on gru-1, in state %s", v.ID, v.State)
			}
		}
		if err != nil {
			h.Error(err)
		}
	}
	if out, err := exec.CommandContext(h.Context(), servertest.Program, "worker", "uncordon", "gru-1", "--api", h.dev.API).CombinedOutput(); err != nil {
		h.Fatalf("uncordon: %v\n%s", err, out)
	}
	h.only(true)
	h.create(h.apps[0], false)
}
