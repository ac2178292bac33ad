package servertest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/bourse-dev/bourse/internal/loopback"
)

// guardVariable is the environment variable that makes the test binary run as a guard for a
// directory (see startGuard).
const guardVariable = "BOURSE_TEST_GUARD"

// startGuard starts a guard process that outlives this one. When this process exits, the guard
// kills all processes whose loopback credentials are in dir, and their descendants. It then removes
// dir. The returned function makes the guard do this immediately. The guard is necessary because a
// test that is killed or exceeds its time limit does not run its cleanups, and servers and
// supervisors outlive their parent.
func startGuard(dir string) (end func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := exec.Command(self)                             //nolint:noctx // it exits when its stdin is closed
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // signals to this process's group do not reach it
	c.Env, c.Dir = append(os.Environ(), guardVariable+"="+dir), "/"
	in, err := c.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func() error { return errors.Join(in.Close(), c.Wait()) }, nil
}

// guarded reports whether this process is a guard. If so, it does the guard's work before it
// returns.
func guarded() bool {
	dir := os.Getenv(guardVariable)
	if dir == "" {
		return false
	}
	_, _ = io.Copy(io.Discard, os.Stdin) // returns when the test's process has exited
	for range 100 {                      // repeat, because the processes may start others
		found := startedFor(dir)
		if len(found) == 0 {
			break
		}
		for _, pid := range found {
			_ = syscall.Kill(pid, syscall.SIGKILL) // the process may have exited
		}
	}
	_ = os.RemoveAll(dir)
	return true
}

// runtimeOf returns the path of the credentials directory in a test's directory.
func runtimeOf(dir string) string { return filepath.Join(dir, "run") }

// startedFor returns the processes whose environment names the credentials directory in dir, and
// their descendants.
func startedFor(dir string) []int {
	const unknown = 0
	parent, member := map[int]int{}, map[int]bool{unknown: false, os.Getpid(): false}
	mark := []byte("\x00" + loopback.Variable + "=" + runtimeOf(dir) + "\x00")
	paths, _ := filepath.Glob("/proc/[0-9]*/stat") // empty on hosts without /proc
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		stat, _ := os.ReadFile(path) // the process may have exited
		words := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(words) < 2 || words[0] == "Z" {
			continue
		}
		parent[pid], _ = strconv.Atoi(words[1])
		environ, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "environ"))
		if bytes.Contains(append([]byte{0}, environ...), mark) {
			member[pid] = true
		}
	}
	var of func(pid int) bool
	of = func(pid int) bool {
		is, known := member[pid]
		if !known {
			member[pid] = false // prevents a cycle if a pid is reused in the meantime
			is = of(parent[pid])
			member[pid] = is
		}
		return is
	}
	var found []int
	for pid := range parent {
		if of(pid) {
			found = append(found, pid)
		}
	}
	return found
}
