package pace

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMonitor shows that the thread taken for the scheduler's monitor is the
// one that sleeps while a goroutine runs, and that it gets the slack.
func TestMonitor(t *testing.T) {
	thread, ok := monitor()
	if !ok {
		t.Fatal("no thread is taken for the monitor")
	}
	before, err := os.ReadFile(slackOf(thread))
	if err != nil {
		t.Skipf("the slack of threads is not shown here: %v", err)
	}
	t.Cleanup(func() { _ = os.WriteFile(slackOf(thread), before, 0o600) })
	RelaxMonitor()
	got, err := os.ReadFile(slackOf(thread))
	if err != nil {
		t.Fatal(err)
	}
	if want := strconv.FormatInt(monitorSlack.Nanoseconds(), 10); strings.TrimSpace(string(got)) != want {
		t.Skipf("its slack stays %s ns: CAP_SYS_NICE is missing", strings.TrimSpace(string(got)))
	}
	asleep := strconv.Itoa(unix.SYS_NANOSLEEP) + " "
	call := filepath.Join("/proc/self/task", thread, "syscall")
	for began := time.Now(); time.Since(began) < 10*time.Second; { // busy all the while
		if text, err := os.ReadFile(call); err != nil {
			t.Skipf("system calls are not shown here: %v", err)
		} else if strings.HasPrefix(string(text), asleep) {
			return
		}
	}
	t.Error("it never sleeps: it is another thread")
}
