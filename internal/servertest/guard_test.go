package servertest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse/internal/loopback"
)

const victimVariable = "BOURSE_TEST_VICTIM"

func TestMain(m *testing.M) {
	if guarded() {
		os.Exit(0)
	}
	if dir := os.Getenv(victimVariable); dir != "" {
		victim(dir)
	}
	os.Exit(m.Run())
}

// victim acts as a test that has started a server and never ends. Like a supervisor, the server
// leaves the test's process group. Like a machine, its child does not inherit its environment.
func victim(dir string) {
	if _, err := startGuard(dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	c := exec.Command("sh", "-c", "env -i sleep 1000 & echo $$ $!; wait")
	c.Env = append(os.Environ(), loopback.Variable+"="+runtimeOf(dir))
	c.Stdout, c.SysProcAttr = os.Stdout, &syscall.SysProcAttr{Setsid: true}
	if err := c.Run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

// TestGuardOfAKilledTest checks that the guard of a killed test kills its server and its machine, and removes its
// directory.
func TestGuardOfAKilledTest(t *testing.T) {
	if _, err := os.Stat("/proc/self/environ"); err != nil {
		t.Skip("no /proc")
	}
	dir := filepath.Join(t.TempDir(), "test")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), self)
	c.Env = append(os.Environ(), victimVariable+"="+dir)
	c.Stderr = t.Output()
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the victim did not start its processes: %v", err)
	}
	if found := startedFor(dir); len(found) != 2 {
		t.Errorf("found processes %v before the end, want the 2 of %q", found, strings.TrimSpace(line))
	}
	_ = c.Process.Kill()
	_ = c.Wait() // the error reports the kill
	for word := range strings.FieldsSeq(line) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if !Within(Timeout, func() bool { return hasEnded(pid) }) {
			t.Errorf("process %d is still running", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if !Within(Timeout, func() bool { _, err := os.Stat(dir); return os.IsNotExist(err) }) {
		t.Error("the directory still exists")
	}
}

// hasEnded reports whether a process has ended, even if its parent has not waited for it.
func hasEnded(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ")
}
