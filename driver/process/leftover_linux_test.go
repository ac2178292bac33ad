package process

import (
	"cmp"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// TestSweepAtStart checks that a new supervisor kills the processes that an earlier supervisor has left in cgroups,
// even if they have no mark.
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
	choice := cgroup.Choose(cgroup.ParseMountinfo(string(mounts)))
	root := cmp.Or(choice.V1["memory"], choice.V2)
	if root == "" {
		t.Skip("the memory controller is not mounted")
	}
	dir := filepath.Join(root, cgroup.Parent, l.mark(), "t99")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Skipf("cgroups cannot be created here: %v", err)
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
		t.Errorf("the leftover process ended with %v, %v, want SIGKILL", status, err)
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its cgroup still exists: %v", err)
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

// TestMarkOfAProcessThatStartsPrograms checks that a process's mark is found at any time. While the kernel is replacing
// the process's program, its environment appears to be empty.
func TestMarkOfAProcessThatStartsPrograms(t *testing.T) {
	const loop = `exec sh -c "$LOOP"`
	c := exec.CommandContext(t.Context(), "sh", "-c", loop)
	c.Env = []string{"PATH=" + os.Getenv("PATH"), "LOOP=" + loop, markVariable + "=abc/m/1"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	for i := range 20_000 {
		if _, ok := markOf(c.Process.Pid, "abc"); !ok {
			t.Fatalf("attempt %d found no mark", i)
		}
	}
}

// TestMarkOfOthers checks that no mark is found for processes without a mark, even if their environment cannot be read.
func TestMarkOfOthers(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "1000")
	c.Env = []string{}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := exec.CommandContext(t.Context(), "true")
	if err := ended.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ended.Wait() }()
	if err := unix.Waitid(unix.P_PID, ended.Process.Pid, nil, unix.WEXITED|unix.WNOWAIT, nil); err != nil { // leaves a zombie
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	for what, pid := range map[string]int{"a process without an environment": c.Process.Pid, "a zombie": ended.Process.Pid, "a thread of the kernel": 2, "this process": os.Getpid(), "no process": 1 << 30} {
		if _, ok := markOf(pid, "abc"); ok {
			t.Errorf("%s has a mark", what)
		}
	}
}
