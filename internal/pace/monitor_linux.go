package pace

import (
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// monitorSlack is how much later than it asked for the monitor of Go's
// scheduler may wake.
const monitorSlack = time.Millisecond

// RelaxMonitor has the monitor of Go's scheduler, a thread of its own in each
// process, wake less often. While anything runs it sleeps for 20 µs, fifty times
// and more after each pause, and on a virtual machine each time costs more
// than that: a fifth of what a busy server used. Its work can wait: it takes the
// processor from goroutines that have run for 10 ms, and gives that of one in a
// system call to others, now after a millisecond. Setting another
// thread's slack needs CAP_SYS_NICE; without it everything is as it was.
func RelaxMonitor() {
	if thread, ok := monitor(); ok {
		// A hint: nothing depends on it.
		_ = os.WriteFile(slackOf(thread), strconv.AppendInt(nil, monitorSlack.Nanoseconds(), 10), 0o600)
	}
}

// monitor gives the id of the monitor's thread: the first that the runtime
// starts. The kernel lists threads in the order in which they began.
func monitor() (thread string, ok bool) {
	dir, err := os.Open("/proc/self/task")
	if err != nil {
		return "", false
	}
	defer dir.Close()
	threads, err := dir.Readdirnames(2)
	if err != nil || len(threads) < 2 || threads[0] != strconv.Itoa(os.Getpid()) {
		return "", false
	}
	return threads[1], true
}

func slackOf(thread string) string { return filepath.Join("/proc", thread, "timerslack_ns") }
