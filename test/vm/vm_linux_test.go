// Package vm runs the drivers' test suite with virtual machines. It is a package of its own, because without KVM it takes minutes.
package vm

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	os.Exit(containerdtest.Main(m))
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
	machines.Dir = filepath.Join(t.TempDir(), "vm")
	v, err := vm.New(machines)
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
	machines := vm.Config{Kernel: vmtest.Find(t).Kernel(), Modules: vmtest.Cached(t, "modules", "scripts/need-kernel"), Agent: agent(t)}
	server := containerdtest.Start(t)
	files := containerdtest.Busybox(t)
	files["/bin/refused"] = containerdtest.File{Data: []byte("#!/bin/sh\n"), Mode: 0o644}
	programs := drivertest.Shell("/bin/refused")
	drivertest.Run(t, drivertest.Harness{
		New:      func(t *testing.T) drivertest.Host { return newHost(t, server.Address, machines) },
		Image:    server.Import(t, container.DefaultNamespace, "test.local/image", containerdtest.MustBuild(t, files, ocispec.ImageConfig{})),
		Many:     3, // each takes several seconds without KVM
		Sizes:    true,
		Limit:    10 * time.Minute,
		Programs: programs,
	})
}

// agent builds the agent that "make build" embeds in the program.
func agent(t *testing.T) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agent")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags", "-s -w", "-o", path, "github.com/bourse-dev/bourse/driver/vm/agent")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the agent: %v\n%s", err, strings.TrimSpace(string(out)))
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}
