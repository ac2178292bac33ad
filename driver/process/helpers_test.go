package process

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

var supervisorCommand = []string{"/proc/self/exe", "supervisor"}

// host is a directory on which one driver runs at a time.
type host struct {
	cfg   Config
	d     *Driver
	began baseline
}

// baseline counts the goroutines and open files of the test process.
type baseline struct{ goroutines, files int }

func newHost(t testing.TB, change func(*Config)) *host {
	t.Helper()
	h := &host{began: measure(t), cfg: Config{
		Dir: filepath.Join(t.TempDir(), "process"), Supervisor: supervisorCommand, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	if change != nil {
		change(&h.cfg)
	}
	t.Cleanup(func() { h.clear(t) })
	return h
}

// Open implements drivertest.Host.
func (h *host) Open(t *testing.T) driver.Driver {
	t.Helper()
	return h.open(t)
}

func (h *host) open(t testing.TB) *Driver {
	t.Helper()
	if h.d != nil {
		if err := h.d.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	h.d = New(h.cfg)
	return h.d
}

// recovered opens a new driver, calls its Recover method, and returns the driver and the recovered
// tasks.
func (h *host) recovered(t testing.TB) (*Driver, []driver.Status) {
	t.Helper()
	d := h.open(t)
	got, err := d.Recover(t.Context())
	if err != nil {
		t.Fatalf("Recover: %v", err)
	}
	return d, got
}

// clear shuts the host down and checks that nothing is left behind.
func (h *host) clear(t testing.TB) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	d := h.open(t)
	if _, err := d.Recover(ctx); err != nil {
		t.Errorf("Recover for the shutdown: %v", err)
		return
	}
	if err := d.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	mark := d.layout.mark()
	if got := marked(mark); len(got) > 0 {
		t.Errorf("%d processes were left behind: %v", len(got), got)
	}
	if left, err := filepath.Glob(filepath.Join(d.layout.dir, "[lm]*", "*")); len(left) > 0 || err != nil {
		t.Errorf("files were left behind: %v, %v", left, err)
	}
	if left, err := filepath.Glob("/sys/fs/cgroup/*/" + cgroup.Parent + "/" + mark); len(left) > 0 || err != nil {
		t.Errorf("cgroups were left behind: %v, %v", left, err)
	}
	now := measure(t)
	for deadline := time.Now().Add(5 * time.Second); (now.goroutines > h.began.goroutines || now.files > h.began.files) && time.Now().Before(deadline); {
		runtime.Gosched() // goroutines may take a moment to exit
		now = measure(t)
	}
	if now.goroutines > h.began.goroutines || now.files > h.began.files {
		stacks := make([]byte, 1<<20)
		t.Errorf("%+v after the test, %+v before; goroutines:\n%s", now, h.began, stacks[:runtime.Stack(stacks, true)])
	}
}

func measure(t testing.TB) baseline {
	t.Helper()
	// The Go runtime opens its own descriptors for polling with the first pipe, so create one
	// before counting.
	if r, w, err := os.Pipe(); err != nil || r.Close() != nil || w.Close() != nil {
		t.Fatal("pipe", err)
	}
	b := baseline{goroutines: runtime.NumGoroutine()}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		b.files = len(entries)
	}
	return b
}

// Processes implements drivertest.Lister.
func (h *host) Processes(*testing.T) int { return len(marked(h.d.layout.mark())) }

// marked returns the processes of a directory's tasks. It finds the processes by their environment,
// without using the driver.
func marked(mark string) []int {
	var out []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		var pid int
		if _, err := fmt.Sscan(e.Name(), &pid); err != nil {
			continue
		}
		environ, err := os.ReadFile(filepath.Join("/proc", e.Name(), "environ"))
		if err == nil && strings.Contains(string(environ), markVariable+"="+mark+"/") {
			out = append(out, pid)
		}
	}
	return out
}

// KillMachinery implements drivertest.MachineryKiller.
func (h *host) KillMachinery(t *testing.T) {
	t.Helper()
	pid := h.supervisor(t)
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatalf("kill the supervisor: %v", err)
	}
}

// supervisor returns the process id of the supervisor to which the driver is connected.
func (h *host) supervisor(t testing.TB) int {
	t.Helper()
	h.d.mu.Lock()
	defer h.d.mu.Unlock()
	if h.d.link == nil {
		t.Fatal("there is no supervisor")
	}
	return h.d.pid
}

// someMachine is the id of a machine for tests that need only one.
const someMachine = bourse.MachineID("00000100000001")

func program(command ...string) driver.Task {
	return driver.Task{
		ID:      driver.TaskID{Machine: bourse.NewMachineID(1), Boot: 1},
		Command: command,
		Env:     []string{"PATH=" + os.Getenv("PATH")},
	}
}
