package container

import (
	"context"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/internal/containerdtest"
)

var keeperCommand = []string{"/proc/self/exe", "keeper"}

// host is a containerd and a directory, on which one driver at a time runs.
type host struct {
	server *containerdtest.Server
	cfg    Config
	keeper *logs.Keeper
	d      *Driver
	began  baseline
}

// baseline counts the goroutines and open files of the test process.
type baseline struct{ goroutines, files int }

// newHost returns a host that uses the containerd shared by the tests.
func newHost(t testing.TB, change func(*Config)) *host {
	t.Helper()
	return newHostOn(t, containerdtest.Start(t), change)
}

func newHostOn(t testing.TB, server *containerdtest.Server, change func(*Config)) *host {
	t.Helper()
	h := &host{server: server, began: measure(t)}
	h.cfg = Config{
		Address: server.Address, Dir: filepath.Join(t.TempDir(), "driver"), Runc: runcCommand(t),
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if change != nil {
		change(&h.cfg)
	}
	t.Cleanup(func() { h.clear(t) })
	return h
}

func runcCommand(t testing.TB) []string {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{path, "runc"}
}

// busybox imports an image with a shell and common commands. The image's configuration has no
// command.
func (h *host) busybox(t testing.TB) string {
	t.Helper()
	return h.image(t, containerdtest.Busybox(t), ocispec.ImageConfig{})
}

func (h *host) image(t testing.TB, files map[string]containerdtest.File, config ocispec.ImageConfig) string {
	t.Helper()
	return h.server.Import(t, DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, files, config))
}

// Open implements drivertest.Host.
func (h *host) Open(t *testing.T) driver.Driver {
	t.Helper()
	return h.open(t)
}

func (h *host) open(t testing.TB) *Driver {
	t.Helper()
	h.close(t)
	h.keeper = logs.NewKeeper(logs.KeeperConfig{Dir: h.keeperDir(), Command: keeperCommand, Log: h.cfg.Log})
	cfg := h.cfg
	cfg.Keeper = h.keeper
	h.d = New(cfg)
	return h.d
}

func (h *host) keeperDir() string { return h.cfg.Dir + "-logs" }

func (h *host) close(t testing.TB) {
	t.Helper()
	if h.d == nil {
		return
	}
	if err := h.d.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	if err := h.keeper.Close(); err != nil {
		t.Errorf("close the keeper: %v", err)
	}
	h.d = nil
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
	if err := h.keeper.Shutdown(ctx); err != nil {
		t.Errorf("shut down the keeper: %v", err)
	}
	mark := d.layout.mark()
	left, groups := mine(h.server.Leftovers(), mark), h.groups(mark)
	for deadline := time.Now().Add(5 * time.Second); len(left)+len(groups) > 0 && time.Now().Before(deadline); {
		runtime.Gosched() // containerd takes some time to clean up after a killed shim
		left, groups = mine(h.server.Leftovers(), mark), h.groups(mark)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
	if len(groups) > 0 {
		t.Errorf("cgroups were left behind: %v", groups)
	}
	for _, dir := range []string{d.layout.tasks(), d.layout.mounts()} {
		if left, err := filepath.Glob(filepath.Join(dir, "*")); len(left) > 0 || err != nil {
			t.Errorf("files were left behind: %v, %v", left, err)
		}
	}
	if left := d.layout.secretTasks(); len(left) > 0 {
		t.Errorf("secrets were left behind: %v", left)
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

// mine returns the leftovers in list that belong to the driver with the given mark. The shims and
// mounts of the driver's containers always contain the mark.
func mine(list []string, mark string) []string {
	return slices.DeleteFunc(list, func(s string) bool { return !strings.Contains(s, mark) })
}

// groups lists the driver's cgroups in all hierarchies.
func (h *host) groups(mark string) []string {
	var out []string
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/" + cgroup.Parent + "/" + mark)
	for _, root := range append(roots, "/sys/fs/cgroup/"+cgroup.Parent+"/"+mark) {
		_ = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err == nil && e.IsDir() {
				out = append(out, path)
			}
			return nil
		})
	}
	return out
}

func measure(t testing.TB) baseline {
	t.Helper()
	files, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return baseline{goroutines: runtime.NumGoroutine(), files: len(files)}
}

// Processes implements drivertest.Lister. It counts the processes in the containers' cgroups.
func (h *host) Processes(t *testing.T) int {
	t.Helper()
	n := 0
	d := h.d
	dirs, _ := filepath.Glob(d.groups.Dir("pids", cgroup.PathOf(d.layout.mark(), "*")))
	for _, dir := range dirs {
		text, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		n += len(strings.Fields(string(text)))
	}
	return n
}

// KillMachinery implements drivertest.MachineryKiller: it kills the shims.
func (h *host) KillMachinery(t *testing.T) {
	t.Helper()
	mark := h.d.layout.mark()
	for _, pid := range h.server.Shims() {
		line, err := os.ReadFile(filepath.Join("/proc", itoa(pid), "cmdline"))
		if err == nil && strings.Contains(string(line), mark) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// order returns a task: the first boot of a new machine.
func order(image string, command ...string) driver.Task {
	return driver.Task{
		ID:    driver.TaskID{Machine: bourse.NewMachineID(1), Boot: 1},
		Image: image, Command: command,
	}
}

// eventually polls ok until it returns true. Use it for conditions without any notification.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}
