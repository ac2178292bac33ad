// Package vm runs the drivers' test suite with virtual machines. It is a separate package, because the tests take
// minutes without KVM.
package vm

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/container"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/driver/logs"
	"github.com/bourse-dev/bourse/driver/vm"
	"github.com/bourse-dev/bourse/internal/containerdtest"
	"github.com/bourse-dev/bourse/internal/vmtest"
)

// TestMain makes the test binary act as the log keeper that the driver starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "keeper" {
		if err := logs.Keep(context.Background(), logs.KeepConfig{Dir: os.Args[2], Log: slog.New(slog.NewTextHandler(os.Stderr, nil)), Grace: time.Minute}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := containerdtest.Main(m)
	if shared.dir != "" {
		_ = os.RemoveAll(shared.dir) // a leftover in the directory for temporary files harms nothing
	}
	os.Exit(code)
}

// shared is the vm.Host of all tests, so that the guests' initial file system and the images' disks are created once.
var shared struct {
	once sync.Once
	dir  string
	host *vm.Host
	err  error
}

func sharedHost(machines vm.Config) (*vm.Host, error) {
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "vm"); shared.err == nil {
			machines.Dir = filepath.Join(shared.dir, "vm")
			shared.host, shared.err = vm.New(machines)
		}
	})
	return shared.host, shared.err
}

// host is a drivertest.Host whose tasks are virtual machines. The processes of its programs cannot be counted, because they
// are in guests.
type host struct {
	cfg    container.Config
	keeper *logs.Keeper
	driver *container.Driver
}

func newHost(t *testing.T, containerd string, machines vm.Config) *host {
	t.Helper()
	v, err := sharedHost(machines)
	if err != nil {
		t.Skip(err)
	}
	h := &host{cfg: container.Config{
		Address: containerd, Dir: filepath.Join(t.TempDir(), "driver"), Runtime: bourse.RuntimeVM, VM: v, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		d := h.Open(t)
		if _, err := d.Recover(ctx); err != nil {
			t.Errorf("Recover for the shutdown: %v", err)
		}
		if err := h.driver.Shutdown(ctx); err != nil {
			t.Errorf("shut the driver down: %v", err)
		}
		if err := h.keeper.Shutdown(ctx); err != nil {
			t.Errorf("shut the keeper down: %v", err)
		}
	})
	return h
}

// Open implements drivertest.Host.
func (h *host) Open(t *testing.T) driver.Driver {
	t.Helper()
	if h.driver != nil {
		if err := h.driver.Close(); err != nil {
			t.Errorf("close the driver: %v", err)
		}
		if err := h.keeper.Close(); err != nil {
			t.Errorf("close the keeper: %v", err)
		}
	}
	h.keeper = logs.NewKeeper(logs.KeeperConfig{Dir: h.cfg.Dir + "-logs", Command: []string{"/proc/self/exe", "keeper"}, Log: h.cfg.Log})
	h.cfg.Keeper = h.keeper
	h.driver = container.New(h.cfg)
	return h.driver
}

// TestDriver runs the suite.
func TestDriver(t *testing.T) {
	vmtest.Cached(t, "modules", "scripts/need-kernel")
	machines := vm.Config{Kernel: vmtest.Find(t).Kernel(), Agent: agent(t)}
	server := containerdtest.Start(t)
	files := containerdtest.Busybox(t)
	files["/bin/refused"] = containerdtest.File{Data: []byte("#!/bin/sh\n"), Mode: 0o644}
	programs := drivertest.Shell("/bin/refused")
	programs.Networks, programs.Read, programs.Write = nil, nil, nil // the suite's networks have no eth0, and there are no volumes
	drivertest.Run(t, drivertest.Harness{
		New:      func(t *testing.T) drivertest.Host { return newHost(t, server.Address, machines) },
		Image:    server.Import(t, container.DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, files, ocispec.ImageConfig{})),
		Many:     3, // each takes several seconds without KVM
		Sizes:    true,
		Limit:    10 * time.Minute,
		Programs: programs,
	})
}

// TestExecs checks that an exec's processes in the background survive it, that those of a canceled exec don't, and that
// failed execs leave nothing behind.
func TestExecs(t *testing.T) {
	vmtest.Cached(t, "modules", "scripts/need-kernel")
	machines := vm.Config{Kernel: vmtest.Find(t).Kernel(), Agent: agent(t)}
	server := containerdtest.Start(t)
	image := server.Import(t, container.DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, containerdtest.Busybox(t), ocispec.ImageConfig{}))
	h := newHost(t, server.Address, machines)
	d := h.Open(t)
	if _, err := d.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	id := driver.TaskID{Machine: "00000000000001", Boot: 1}
	if _, err := d.Start(t.Context(), driver.Task{ID: id, Image: image, Command: []string{"sleep", "10000"}, Limits: driver.Limits{Memory: 256}}); err != nil {
		t.Fatal(err)
	}
	sh := func(ctx context.Context, script string) (string, error) {
		r, err := d.Exec(ctx, id, driver.Exec{Command: []string{"sh", "-c", script}})
		return strings.TrimSpace(string(r.Stdout)), err
	}
	if _, err := sh(t.Context(), "sleep 1001 >/dev/null 2>&1 &"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	started, w := io.Pipe()
	go func() {
		_, _ = io.ReadFull(started, make([]byte, 1))
		cancel()
		_ = started.Close() // so that writes return; it never fails
	}()
	_, err := d.Exec(ctx, id, driver.Exec{Command: []string{"sh", "-c", "sleep 1002 & while :; do echo flood; done"}, Stdout: w})
	if err == nil {
		t.Error("the canceled exec returned no error")
	}
	for range 20 {
		if _, err := d.Exec(t.Context(), id, driver.Exec{Command: []string{"nosuch"}, Stdin: strings.NewReader("input")}); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Fatalf("exec of a missing program: %v, want invalid", err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; {
		out, err := sh(t.Context(), "ps -o args | grep '[s]leep 100[0-9]$' | sort")
		if err != nil {
			t.Fatal(err)
		}
		if out == "sleep 1001" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("these processes run: %q, want only sleep 1001", out)
		}
	}
	if out, err := sh(t.Context(), "kill -USR1 1; ls /proc/1/fd | wc -l"); err != nil || len(out) > 2 {
		t.Errorf("process 1 of the guest has %s open files, %v; want fewer than 100", out, err)
	}
	if exit, err := d.Wait(t.Context(), id); err != nil || exit.Signal != 10 {
		t.Errorf("exit %+v, %v; want the signal that process 1 has forwarded", exit, err)
	}
}

// agent returns the agent that "make build" embeds in the program.
func agent(t *testing.T) []byte {
	t.Helper()
	data, err := buildAgent()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var buildAgent = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "agent")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "agent")
	build := exec.Command("go", "build", "-ldflags", "-s -w", "-o", path, "github.com/bourse-dev/bourse/driver/vm/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the agent: %w\n%s", err, out)
	}
	return os.ReadFile(path)
})
