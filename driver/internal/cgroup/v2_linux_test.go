package cgroup

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// TestV2Limits sets limits in a plain directory instead of a cgroup, and checks the files and
// values. Where v2 is mounted, TestGroupsEnforce checks that the kernel enforces them.
func TestV2Limits(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"cpu.weight": "200", "cpu.max": "150000 100000", "pids.max": "9", "memory.max": "67108864", "memory.swap.max": "0"}
	for name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &v2Group{all: &v2Groups{controllers: limiting}, dir: dir}
	if err := g.limit(driver.Limits{CPUWeight: 2000, CPUQuota: 1500, Memory: 64, PIDs: 9}); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s contains %q, %v, want %q", name, got, err, want)
		}
	}
	if err := (&v2Group{all: &v2Groups{}, dir: t.TempDir()}).limit(driver.Limits{Memory: 64}); err != nil {
		t.Errorf("a missing controller: got %v, want its limit to be ignored", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 1\noom_kill 1\n"), 0o600); err != nil || !g.OOMKilled() {
		t.Errorf("OOM kills are not reported: %v", err)
	}
}

// TestV2Membership forks into a real cgroup of the unified hierarchy. It requires root and a
// mounted v2 hierarchy, but no controllers.
func TestV2Membership(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	root := Choose(ParseMountinfo(string(mounts))).V2
	if root == "" {
		t.Skip("no unified hierarchy is mounted")
	}
	g := &v2Groups{dir: filepath.Join(root, Parent, markOf("test-membership"))}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		t.Skipf("cgroups cannot be created here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Rmdir(g.dir); _ = syscall.Rmdir(filepath.Dir(g.dir)) })
	own, err := g.New(driver.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	pid, err := own.Fork(func(sys *syscall.SysProcAttr) (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", "setsid sleep 1000 & sleep 1000"}, &syscall.ProcAttr{Sys: sys})
	})
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		t.Skipf("clone into a cgroup does not work here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got := own.Members(); !slices.Contains(got, pid) {
		t.Errorf("members %v, want a list with %d", got, pid)
	}
	own.KillAll(time.Minute)
	if got := own.Members(); len(got) > 0 {
		t.Errorf("members %v after KillAll", got)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
	if err := own.Remove(); err != nil {
		t.Error(err)
	}
}
