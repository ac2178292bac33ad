package process

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

func itoa(n int) string { return strconv.Itoa(n) }

// eventually polls ok until it returns true. Use it to wait for other processes that do not send a notification.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// TestLongDirectory checks that the path of the driver's directory may be longer than the maximum
// length of a socket's path.
func TestLongDirectory(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Dir = filepath.Join(c.Dir, strings.Repeat("long/", 50)) })
	d, _ := h.recovered(t)
	if _, err := d.Start(t.Context(), program("sleep", "1000")); err != nil {
		t.Fatal(err)
	}
	if _, got := h.recovered(t); len(got) != 1 {
		t.Errorf("recovered %+v, want the task", got)
	}
}

// TestTwoSupervisors checks that a second supervisor in a directory exits, and that drivers that
// start concurrently use the same supervisor.
func TestTwoSupervisors(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	out, err := exec.CommandContext(t.Context(), "/proc/self/exe", "supervisor", d.layout.dir).CombinedOutput()
	if err == nil || !strings.Contains(string(out), companion.ErrHeld.Error()) {
		t.Errorf("a second supervisor printed %q, %v, want %q", out, err, companion.ErrHeld)
	}
	if _, err := d.Start(t.Context(), program("sleep", "1000")); err != nil {
		t.Errorf("the first supervisor was affected: %v", err)
	}
}

func TestRacingDrivers(t *testing.T) {
	h := newHost(t, nil)
	type result struct {
		d   *Driver
		err error
	}
	results := make(chan result, 4)
	for range cap(results) {
		go func() {
			d := New(h.cfg)
			_, err := d.Recover(context.WithoutCancel(t.Context()))
			results <- result{d, err}
		}()
	}
	pids := map[int]bool{}
	for range cap(results) {
		r := <-results
		if r.d.pid != 0 {
			pids[r.d.pid] = true
		}
		defer r.d.Close()
	}
	if len(pids) != 1 {
		t.Errorf("drivers found supervisors %v, want one", pids)
	}
}

// TestReplacedDaemon checks that a newer daemon replaces an older one, and that the older one
// does not reconnect.
func TestReplacedDaemon(t *testing.T) {
	h := newHost(t, nil)
	old, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := old.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { _, err := old.Wait(context.WithoutCancel(t.Context()), task.ID); waiting <- err }()
	newer := New(h.cfg)
	if got, err := newer.Recover(t.Context()); err != nil || len(got) != 1 {
		t.Fatalf("recovered %v, %v", got, err)
	}
	defer newer.Close()
	if err := <-waiting; bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("Wait of the older daemon returned %v, want unavailable", err)
	}
	if _, err := old.Start(t.Context(), program("sleep", "1000")); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("Start of the older daemon returned %v, want unavailable", err)
	}
	if _, err := newer.Start(t.Context(), program("sleep", "1000")); err != nil {
		t.Errorf("Start of the newer daemon returned %v", err)
	}
}

// TestIdleSupervisorEnds checks that a supervisor exits once it is no longer needed, and not before.
func TestIdleSupervisorEnds(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sh", "-c", "exit 3")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Wait(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	first := d.pid
	if d, _ = h.recovered(t); d.pid != first {
		t.Error("a supervisor exited although it had an exit that was not discarded")
	}
	if err := d.DiscardExit(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the supervisor has ended", func() bool {
		free, err := companion.LockFree(d.layout.lock())
		return free && err == nil
	})
	if d, _ = h.recovered(t); d.pid == first {
		t.Error("the supervisor is still running")
	}
}

// TestTerminatedSupervisor checks that SIGTERM shuts a supervisor down, and that signals from a
// terminal do not.
func TestTerminatedSupervisor(t *testing.T) {
	h := newHost(t, nil)
	d, _ := h.recovered(t)
	task := program("sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	for _, harmless := range []syscall.Signal{syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGPIPE} {
		if err := syscall.Kill(d.pid, harmless); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Logs(t.Context(), task.ID.Machine, driver.LogQuery{Follow: true}, func(driver.LogLine) error { return os.ErrExist }); !errors.Is(err, os.ErrExist) {
		t.Fatalf("a harmless signal had an effect: %v", err)
	}
	if err := syscall.Kill(d.pid, syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit, err := d.Wait(t.Context(), task.ID); err != nil || exit.Code != 5 {
		t.Errorf("got exit %+v, %v, want code 5", exit, err)
	}
	// The driver starts another supervisor. If the driver were closed in the meantime, that
	// supervisor would outlive it.
	_, err := d.Start(t.Context(), program("true"))
	for bourse.CodeOf(err) == bourse.CodeUnavailable { // the old supervisor may have received the request while it was exiting
		_, err = d.Start(t.Context(), program("true"))
	}
	if err != nil {
		t.Errorf("start after the shutdown: %v", err)
	}
}

// TestIgnoredSignalsAreNotInherited checks that a machine does not inherit ignored signals. A
// shell, for example, ignores SIGINT in the programs that it starts in the background.
func TestIgnoredSignalsAreNotInherited(t *testing.T) {
	h := newHost(t, func(c *Config) {
		c.Supervisor = []string{"sh", "-c", `trap '' INT QUIT HUP TERM USR1; exec "$0" supervisor "$1"`, "/proc/" + itoa(os.Getpid()) + "/exe"}
	})
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if err := d.Signal(t.Context(), task.ID, "SIGINT"); err != nil {
		t.Fatal(err)
	}
	if exit, err := d.Wait(t.Context(), task.ID); err != nil || exit.Signal != int(syscall.SIGINT) {
		t.Errorf("got exit %+v, %v, want SIGINT", exit, err)
	}
}

// TestSupervisorThatCannotStart checks the errors that are returned when a supervisor cannot be started.
func TestSupervisorThatCannotStart(t *testing.T) {
	for name, command := range map[string][]string{"missing": {"no-such-program-anywhere"}, "none": nil} {
		d := New(Config{Dir: t.TempDir(), Supervisor: command})
		if _, err := d.Recover(t.Context()); bourse.CodeOf(err) != bourse.CodeInvalid {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
		if _, err := d.Start(t.Context(), program("true")); bourse.CodeOf(err) != bourse.CodeUnavailable {
			t.Errorf("%s: Start returned %v, want unavailable", name, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	d := New(Config{Dir: t.TempDir(), Supervisor: []string{"sh", "-c", "exit 1"}})
	defer d.Close()
	if _, err := d.Recover(ctx); err == nil || !strings.Contains(err.Error(), "supervisor") {
		t.Errorf("a supervisor that exits at once: got %v, want an error that reports the exit", err)
	}
}

// TestInheritedFilesAreClosed checks that a pipe that leaked into the daemon is not inherited by a task or by the
// supervisor, which would hold it open permanently.
func TestInheritedFilesAreClosed(t *testing.T) {
	h := newHost(t, func(c *Config) {
		c.Supervisor = []string{"sh", "-c", `exec 9>/dev/null; exec "$0" supervisor "$1"`, "/proc/" + itoa(os.Getpid()) + "/exe"}
	})
	d, _ := h.recovered(t)
	if target, err := os.Readlink("/proc/" + itoa(d.pid) + "/fd/9"); err == nil && target == "/dev/null" {
		flags, err := os.ReadFile("/proc/" + itoa(d.pid) + "/fdinfo/9")
		if err != nil || !strings.Contains(string(flags), "02") { // with O_CLOEXEC it is one of the supervisor's own files
			t.Errorf("the supervisor holds descriptor 9: %s", flags)
		}
	}
	task := program("sh", "-c", "ls /proc/self/fd")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Wait(t.Context(), task.ID); err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := d.Logs(t.Context(), task.ID.Machine, driver.LogQuery{}, func(l driver.LogLine) error { got = append(got, l.Text); return nil }); err != nil {
		t.Fatal(err)
	}
	if want := []string{"0", "1", "2", "3"}; !slices.Equal(got, want) { // 3 is the directory that ls has opened
		t.Errorf("a task has descriptors %v, want %v", got, want)
	}
}

// TestShutdownReapsExecs checks that a supervisor that is shutting down waits for a command that
// outlives its task, and reaps it.
func TestShutdownReapsExecs(t *testing.T) {
	h := newHost(t, func(c *Config) { c.Limits = LimitsOff }) // with cgroups, the command would be killed at once
	d, _ := h.recovered(t)
	task := program("sleep", "1000")
	if _, err := d.Start(t.Context(), task); err != nil {
		t.Fatal(err)
	}
	r, w := io.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = d.Exec(context.WithoutCancel(t.Context()), task.ID, driver.Exec{
			Command: []string{"sh", "-c", "trap '' HUP; echo up; sleep 1000"}, Terminal: &driver.Terminal{Size: driver.Size{Rows: 24, Cols: 80}}, Stdout: w,
		})
	}()
	if _, err := io.ReadFull(r, make([]byte, len("up"))); err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = io.Copy(io.Discard, r) }()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := d.Shutdown(ctx); err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	<-done
	_ = w.Close()
}
