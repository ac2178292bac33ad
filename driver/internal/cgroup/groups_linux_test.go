package cgroup

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse/driver"
)

// host returns groups in the host's real cgroups, v1 or v2, below a parent cgroup named mark.
func host(t *testing.T, mark string) Groups {
	t.Helper()
	g := Open(markOf(mark), slog.New(slog.NewTextHandler(t.Output(), nil)))
	if g.Labels()["cgroup"] == "none" {
		t.Skip("cgroups do not exist or may not be used")
	}
	return g
}

func markOf(name string) string { return fmt.Sprintf("%s-%d", name, os.Getpid()) }

// born starts a program in a group.
func born(groups Groups, g Group, stdout *os.File, command ...string) (pid int, err error) {
	forkExec := func(sys *syscall.SysProcAttr) (int, error) {
		attr := &syscall.ProcAttr{Sys: sys, Env: os.Environ()}
		if stdout != nil {
			attr.Files = []uintptr{0, stdout.Fd(), 2}
		}
		return syscall.ForkExec(command[0], command, attr)
	}
	if !groups.ByThread() {
		return g.Fork(forkExec)
	}
	OnOwnThread(func() { pid, err = g.Fork(forkExec) })
	return pid, err
}

// await waits until a process ends.
func await(t *testing.T, pid int) (status syscall.WaitStatus) {
	t.Helper()
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		t.Errorf("wait for %d: %v", pid, err)
	}
	return status
}

// TestGroupsLimitFromTheStart checks that all limits of a group are set before its program
// starts, and that the program starts in the group.
func TestGroupsLimitFromTheStart(t *testing.T) {
	groups := host(t, "test-start")
	t.Cleanup(groups.Close)
	g, err := groups.New(driver.Limits{Memory: 64, PIDs: 9, CPUWeight: 500, CPUQuota: 1500})
	if err != nil {
		t.Fatal(err)
	}
	wants := map[string]string{"memory.max": "67108864", "pids.max": "9", "cpu.weight": "50", "cpu.max": "150000 100000"}
	if groups.ByThread() {
		wants = map[string]string{"memory.limit_in_bytes": "67108864", "pids.max": "9", "cpu.shares": "512", "cpu.cfs_quota_us": "150000"}
	}
	for file, want := range wants {
		controller, _, _ := strings.Cut(file, ".")
		if got := strings.TrimSpace(read(g, controller, file)); groups.Labels()["limit."+controller] != "" && got != want {
			t.Errorf("%s is %q before the program starts, want %s", file, got, want)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	pid, err := born(groups, g, w, "/bin/cat", "/proc/self/cgroup")
	_ = w.Close()
	if err != nil {
		t.Fatal(err)
	}
	seen := make([]byte, 1<<16)
	n, _ := r.Read(seen)
	await(t, pid)
	self := parseSelf(string(seen[:n]))
	for _, dir := range dirsOf(g) {
		if !slices.ContainsFunc(slices.Collect(mapValues(self)), func(path string) bool { return strings.HasSuffix(dir, path) && len(path) > 1 }) {
			t.Errorf("the program in %s reports the groups %v", dir, self)
		}
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func mapValues(m map[string]string) func(func(string) bool) {
	return func(yield func(string) bool) {
		for _, v := range m {
			if !yield(v) {
				return
			}
		}
	}
}

// dirsOf returns the directories of a group's cgroups.
func dirsOf(g Group) (out []string) {
	switch g := g.(type) {
	case *v1Group:
		for _, h := range g.all.trees {
			out = append(out, g.dir(h))
		}
	case *v2Group:
		out = []string{g.dir}
	}
	return out
}

// read returns the contents of one of a group's files.
func read(g Group, controller, file string) string {
	for _, dir := range dirsOf(g) {
		if strings.Contains(dir, "/"+controller) || len(dirsOf(g)) == 1 {
			return readFile(dir, file)
		}
	}
	return ""
}

// TestGroupsEnforce checks that the kernel enforces the limits: a program that uses too much
// memory is killed and OOMKilled reports that, and a program that forks too often fails.
func TestGroupsEnforce(t *testing.T) {
	groups := host(t, "test-enforce")
	t.Cleanup(groups.Close)
	for name, c := range map[string]struct {
		limits driver.Limits
		script string
		oom    bool
	}{
		"memory": {driver.Limits{Memory: 32}, "dd if=/dev/zero of=/dev/null bs=100000000 count=1; exit 0", true},
		"pids":   {driver.Limits{PIDs: 5}, "for i in 1 2 3 4 5 6 7 8 9; do sleep 1000 & done", false},
	} {
		if groups.Labels()["limit."+name] == "" {
			t.Logf("this host does not limit %s", name)
			continue
		}
		g, err := groups.New(c.limits)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := born(groups, g, nil, "/bin/sh", "-c", c.script)
		if err != nil {
			t.Fatal(err)
		}
		status := await(t, pid)
		if g.OOMKilled() != c.oom || (!c.oom && status.ExitStatus() == 0) {
			t.Errorf("%s: got status %v, out of memory %t", name, status, g.OOMKilled())
		}
		g.KillAll(time.Minute)
		if got := g.Members(); len(got) > 0 {
			t.Errorf("%s: got processes %v, want none", name, got)
		}
		if err := g.Remove(); err != nil {
			t.Error(err)
		}
	}
}

// TestGroupsAtOnce concurrently creates, fills, kills and removes groups. Afterwards no thread of
// this process may be in one of them, and no cgroup or file descriptor may remain.
func TestGroupsAtOnce(t *testing.T) {
	groups := host(t, "test-at-once")
	before := threadGroups(t)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 5 {
				if err := fillAndRemove(groups); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for path := range threadGroups(t) {
		if !before[path] {
			t.Errorf("a thread of this process is in %q", path)
		}
	}
	groups.Close()
	if left, err := filepath.Glob("/sys/fs/cgroup/*/" + Parent + "/" + markOf("test-at-once")); len(left) > 0 || err != nil {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestLimitsDespiteSignals sets limits while the writing thread keeps receiving signals, which also
// happens when Go's runtime interrupts threads.
func TestLimitsDespiteSignals(t *testing.T) {
	groups := host(t, "test-signals")
	t.Cleanup(groups.Close)
	g, err := groups.New(driver.Limits{Memory: 64})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	thread, stop := syscall.Gettid(), make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				_ = unix.Tgkill(os.Getpid(), thread, unix.SIGURG)
			}
		}
	})
	for i := range 500 {
		if err := g.(interface{ limit(driver.Limits) error }).limit(driver.Limits{Memory: 64}); err != nil {
			t.Errorf("write %d: %v", i, err)
			break
		}
	}
	close(stop)
	signals.Wait()
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
}

func fillAndRemove(groups Groups) error {
	g, err := groups.New(driver.Limits{Memory: 64, PIDs: 20})
	if err != nil {
		return err
	}
	if _, err := born(groups, g, nil, "/no/such/program"); !errors.Is(err, syscall.ENOENT) {
		return fmt.Errorf("a missing program: %w", err)
	}
	pid, err := born(groups, g, nil, "/bin/sh", "-c", "setsid sleep 1000 & sleep 1000")
	if err != nil {
		return err
	}
	if !slices.Contains(g.Members(), pid) {
		err = fmt.Errorf("members: got %v, want a list with %d", g.Members(), pid)
	}
	g.KillAll(time.Minute)
	_, errWait := syscall.Wait4(pid, nil, 0, nil)
	return errors.Join(err, errWait, g.Remove())
}

// threadGroups returns the contents of the cgroup files of all threads of this process.
func threadGroups(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	files, err := filepath.Glob("/proc/self/task/*/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if b, err := os.ReadFile(f); err == nil { // reading fails if the thread has ended
			out[string(b)] = true
		}
	}
	return out
}

// TestOpenSweeps checks that Open kills the processes and removes the groups that an earlier
// process with the same mark has left behind, and does not touch the groups of other marks.
func TestOpenSweeps(t *testing.T) {
	first, others := host(t, "test-sweep"), host(t, "test-other")
	t.Cleanup(others.Close)
	var pids []int
	var groups []Group
	for _, owner := range []Groups{first, others} {
		g, err := owner.New(driver.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		pid, err := born(owner, g, nil, "/bin/sleep", "1000")
		if err != nil {
			t.Fatal(err)
		}
		pids, groups = append(pids, pid), append(groups, g)
	}
	second := host(t, "test-sweep")
	t.Cleanup(second.Close)
	if status := await(t, pids[0]); status.Signal() != syscall.SIGKILL {
		t.Errorf("the leftover process ended with %v, want SIGKILL", status)
	}
	for _, dir := range dirsOf(groups[0]) {
		if exists(dir, "") {
			t.Errorf("%s still exists", dir)
		}
	}
	if got := groups[1].Members(); !slices.Contains(got, pids[1]) {
		t.Errorf("members of the other mark's group: got %v, want a list with %d", got, pids[1])
	}
	groups[1].KillAll(time.Minute)
	await(t, pids[1])
	if err := groups[1].Remove(); err != nil {
		t.Error(err)
	}
}
