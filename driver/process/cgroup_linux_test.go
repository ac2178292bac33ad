package process

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// TestV2Limits writes the limits into a directory that stands for a cgroup:
// the files and figures are right; what the kernel makes of them is not shown.
func TestV2Limits(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{"cpu.weight": "200", "cpu.max": "150000 100000", "pids.max": "9", "memory.max": "67108864", "memory.swap.max": "0"}
	for name := range files {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	g := &v2Group{all: &v2Groups{controllers: cgroup.Limiting}, dir: dir}
	limits := driver.Limits{CPUWeight: 2000, CPUQuota: 1500, Memory: 64, PIDs: 9}
	if err := errors.Join(g.bound(limits), g.limit(limits)); err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(got) != want {
			t.Errorf("%s holds %q, %v, want %q", name, got, err, want)
		}
	}
	if err := (&v2Group{all: &v2Groups{}, dir: t.TempDir()}).limit(driver.Limits{Memory: 64}); err != nil {
		t.Errorf("a controller that is not there: %v, want it left alone", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "memory.events"), []byte("oom 1\noom_kill 1\n"), 0o600); err != nil || !g.oomKilled() {
		t.Errorf("oom kills are not seen: %v", err)
	}
}

// TestV2Membership forks into a real cgroup of the unified hierarchy, which
// needs root and a mount, but no controllers.
func TestV2Membership(t *testing.T) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	root := cgroup.Choose(cgroup.ParseMountinfo(string(mounts))).V2
	if root == "" {
		t.Skip("no unified hierarchy is mounted")
	}
	g := &v2Groups{dir: filepath.Join(root, cgroupParent, "test-"+strings.ToLower(t.Name()))}
	if err := os.MkdirAll(g.dir, 0o755); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Rmdir(g.dir); _ = syscall.Rmdir(filepath.Dir(g.dir)) })
	pid, own, err := g.fork(nil, driver.Limits{}, func(sys *syscall.SysProcAttr) (int, error) {
		return syscall.ForkExec("/bin/sh", []string{"sh", "-c", "setsid sleep 1000 & sleep 1000"}, &syscall.ProcAttr{Sys: sys})
	})
	if errors.Is(err, syscall.ENOSYS) || errors.Is(err, syscall.EPERM) {
		t.Skipf("clone into a cgroup does not work here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	dir := own.(*v2Group).dir
	if got, err := members(dir); err != nil || !slices.Contains(got, pid) {
		t.Errorf("members %v, %v, want %d among them", got, err, pid)
	}
	own.killAll(time.Minute)
	if got, err := members(dir); err != nil || len(got) > 0 {
		t.Errorf("members %v, %v after all were killed", got, err)
	}
	if _, err := syscall.Wait4(pid, nil, 0, nil); err != nil {
		t.Error(err)
	}
	if err := own.remove(); err != nil {
		t.Error(err)
	}
	if _, _, err := g.fork(nil, driver.Limits{}, func(*syscall.SysProcAttr) (int, error) { return 0, syscall.ENOENT }); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("a fork that fails gave %v", err)
	}
	if entries, err := filepath.Glob(g.dir + "/t*"); err != nil || len(entries) > 0 {
		t.Errorf("cgroups were left behind: %v, %v", entries, err)
	}
}

// TestSweepAtStart shows that what an earlier supervisor has left in cgroups
// is killed, though it carries no mark.
func TestSweepAtStart(t *testing.T) {
	h := newHost(t, nil)
	l, err := newLayout(h.cfg.Dir)
	if err != nil {
		t.Fatal(err)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	root := cgroup.Choose(cgroup.ParseMountinfo(string(mounts))).V1["memory"]
	if root == "" {
		t.Skip("no v1 hierarchy for memory is mounted")
	}
	dir := filepath.Join(root, cgroupParent, l.mark(), "t99")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skipf("cgroups cannot be made here: %v", err)
	}
	pid, err := syscall.ForkExec("/bin/sleep", []string{"sleep", "1000"}, &syscall.ProcAttr{Env: []string{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(itoa(pid)), 0); err != nil {
		t.Fatal(err)
	}
	h.recovered(t)
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil || status.Signal() != syscall.SIGKILL {
		t.Errorf("it ended with %v, %v, want SIGKILL", status, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its cgroup is still there: %v", err)
	}
}

func TestMarkedAs(t *testing.T) {
	want := driver.TaskID{Machine: "00000100000001", Boot: 12}
	for environ, ok := range map[string]bool{
		"A=1\x00BOURSE_TASK=abc/00000100000001/12\x00B=2\x00": true,
		"BOURSE_TASK=abc/00000100000001/12":                   true,
		"BOURSE_TASK=abd/00000100000001/12\x00":               false,
		"BOURSE_TASK=abc/00000100000001\x00":                  false,
		"BOURSE_TASK=abc/00000100000001/x\x00":                false,
		"XBOURSE_TASK=abc/00000100000001/12\x00":              false,
		"":                                                    false,
	} {
		got, found := markedAs([]byte(environ), "abc")
		if found != ok || (ok && got != want) {
			t.Errorf("%q: got %v, %v, want %v, %v", environ, got, found, want, ok)
		}
	}
}

func TestMarkCannotBeForged(t *testing.T) {
	s := &supervisor{mark: "abc", log: slog.New(slog.DiscardHandler)}
	got := s.marked([]string{"BOURSE_TASK=other/1/1", "BOURSE_TASKS=kept", "A=1"}, driver.TaskID{Machine: bourse.MachineID("m"), Boot: 1})
	if want := []string{"BOURSE_TASKS=kept", "A=1", "BOURSE_TASK=abc/m/1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
