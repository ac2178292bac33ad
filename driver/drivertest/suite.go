package drivertest

import (
	"context"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// Harness configures the suite for a driver.
type Harness struct {
	// New creates an empty host. For a real host, it also registers a cleanup function, which shuts the host down and
	// reports a test error if processes, files, cgroups or goroutines are left behind.
	New func(t *testing.T) Host
	// Image is the image of the tasks; default bourse.ImageHost.
	Image string
	// Env is the environment of every task, for instance its PATH.
	Env      []string
	Programs Programs
	Many     int           // number of machines in the case "many at once"; default 200
	Sizes    bool          // limits determine a machine's size, and the machine can boot only if they are high enough
	Limit    time.Duration // time limit for each case; default 3 minutes, far longer than any case should take
}

// Host is a real or simulated host on which drivers run.
type Host interface {
	// Open simulates the start of a daemon, and returns the daemon's driver. It disconnects the previous driver as if
	// its daemon had been killed; the tasks continue to run.
	Open(t *testing.T) driver.Driver
}

// MachineryKiller is implemented by a Host whose driver has processes of its own that a test can kill, such as a
// supervisor.
type MachineryKiller interface {
	KillMachinery(t *testing.T)
}

// Lister is implemented by a Host that can count its machines' processes by asking the operating system instead of
// the driver.
type Lister interface {
	// Processes returns the total number of processes of all tasks on the host.
	Processes(t *testing.T) int
}

// Programs are the commands that the suite runs. If a program is nil, the cases that need it are
// skipped.
type Programs struct {
	Run      []string                                  // prints "ready", then runs until a signal ends it
	Ignore   []string                                  // like Run, but only SIGKILL ends it
	Exit     func(code int) []string                   // exits with the given code immediately
	Print    func(stdout, stderr string) []string      // prints a line to each output and exits with 0
	Lines    func(from, to int) []string               // prints "line N" for from <= N < to and exits with 0
	Slow     func(n int, pause time.Duration) []string // like Lines(0, n), but pauses between lines
	Sleep    func(d time.Duration, code int) []string  // exits with the given code after the duration d
	Env      func(name string) []string                // prints the value of a variable
	Dir      []string                                  // prints its working directory
	User     []string                                  // prints its user id; fails unless Task.User was applied
	Cat      []string                                  // copies stdin to stdout
	LateCat  []string                                  // like Cat, but starts reading only after a moment
	Echo     func(text string) []string                // prints text, which it receives as an argument
	Tree     []string                                  // prints "ready", then runs children and grandchildren, some of which ignore signals, until killed
	Leaver   []string                                  // exits with 0 immediately and leaves children behind in its process group
	Escaper  []string                                  // exits with 0 and leaves a child behind that is in another session and holds its output open
	Allocate func(m bourse.MiB) []string               // allocates and fills m of memory, prints "allocated", exits with 0
	Forks    func(n int) []string                      // runs n concurrent processes; exits with 0 if all of them started
	Busy     []string                                  // prints "ready", then uses a processor until a signal ends it
	Read     func(path string) []string                // copies a file to stdout; fails if the file does not exist
	Write    func(path, text string) []string          // writes a file; exits with an error if that is impossible
	Networks []string                                  // prints the names of the network interfaces that it sees, one per line
	Converse []string                                  // like Cat, but copies each line as soon as it is read
	Terminal []string                                  // prints $TERM and exits with 0 if its three files are its controlling terminal
	Size     []string                                  // prints "size <rows> <columns>" at startup and after each change; exits with 7 after a line of input
	Missing  []string                                  // does not exist
	Refused  []string                                  // exists and is not executable
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	if h.Image == "" {
		h.Image = bourse.ImageHost
	}
	if h.Many == 0 {
		h.Many = 200
	}
	if h.Limit == 0 {
		h.Limit = 3 * time.Minute
	}
	for _, group := range []map[string]func(*suite){
		lifeCases, signalCases, outputCases, execCases, streamCases, terminalCases,
		stdinCases, limitCases, freezeCases, usageCases, apartCases, recoverCases,
	} {
		for name, run := range group {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), h.Limit)
				defer cancel()
				s := &suite{T: t, h: h, p: h.Programs, ctx: ctx, host: h.New(t)}
				s.reopen()
				run(s)
			})
		}
	}
}

// suite is the state of one test case.
type suite struct {
	*testing.T
	h     Harness
	p     Programs
	ctx   context.Context //nolint:containedctx // the test case's context, which its helpers share
	host  Host
	d     driver.Driver
	count atomic.Int64
}

// reopen kills the daemon, starts another one, and returns the tasks that it recovers.
func (s *suite) reopen() []driver.Status {
	s.Helper()
	s.d = s.host.Open(s.T)
	got, err := s.d.Recover(s.ctx)
	if err != nil {
		s.Fatalf("Recover: %v", err)
	}
	return got
}

// need skips the test case unless provided is true, which means that the harness provides the program that the case
// needs. what describes that program.
func (s *suite) need(what string, provided bool) {
	s.Helper()
	if !provided {
		s.Skipf("the harness has no program for %s", what)
	}
}

// task returns a task: the first boot of a new machine.
func (s *suite) task(command []string) driver.Task {
	id := bourse.MachineID(bourse.WorkerTag(7).String() + hex8(s.count.Add(1)))
	return driver.Task{
		ID:      driver.TaskID{Machine: id, Boot: 1},
		Image:   s.h.Image,
		Command: command,
		Env:     append([]string(nil), s.h.Env...),
	}
}

func hex8(n int64) string {
	const digits = "0123456789abcdef"
	b := []byte("00000000")
	for i := len(b) - 1; n > 0; i, n = i-1, n>>4 {
		b[i] = digits[n&15]
	}
	return string(b)
}

// start starts a task and fails the test if it cannot be started.
func (s *suite) start(task driver.Task) driver.Status {
	s.Helper()
	status, err := s.d.Start(s.ctx, task)
	if err != nil {
		s.Fatalf("Start %v: %v", task.Command, err)
	}
	if status.ID != task.ID || status.StartedAt.IsZero() {
		s.Fatalf("Start returned %+v, want the status of %v", status, task.ID)
	}
	return status
}

// wait waits until a task ends and returns its exit.
func (s *suite) wait(id driver.TaskID) bourse.Exit {
	s.Helper()
	exit, err := s.d.Wait(s.ctx, id)
	if err != nil {
		s.Fatalf("Wait %v: %v", id, err)
	}
	if exit.At.IsZero() {
		s.Errorf("exit %+v has no time", exit)
	}
	return exit
}

// run starts a task, waits until it ends and returns its exit.
func (s *suite) run(task driver.Task) bourse.Exit {
	s.Helper()
	s.start(task)
	return s.wait(task.ID)
}

// wantCode reports a test error unless err's code is want.
func (s *suite) wantCode(what string, err error, want bourse.Code) {
	s.Helper()
	if got := bourse.CodeOf(err); got != want {
		s.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}

// logs returns the lines of a machine's log that a query selects.
func (s *suite) logs(id bourse.MachineID, want driver.LogQuery) []driver.LogLine {
	s.Helper()
	var out []driver.LogLine
	if err := s.d.Logs(s.ctx, id, want, func(l driver.LogLine) error { out = append(out, l); return nil }); err != nil {
		s.Fatalf("Logs: %v", err)
	}
	return out
}

// texts returns the lines of one stream, joining those that the log split.
func texts(lines []driver.LogLine, stream string) []string {
	var out []string
	open := false
	for _, l := range lines {
		if l.Stream != stream {
			continue
		}
		if open {
			out[len(out)-1] += l.Text
		} else {
			out = append(out, l.Text)
		}
		open = l.Partial
	}
	return out
}

// awaitReady follows a machine's log until the line "ready" appears.
func (s *suite) awaitReady(id bourse.MachineID) {
	s.Helper()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	found := false
	err := s.d.Logs(ctx, id, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
		if l.Text == "ready" {
			found = true
			cancel()
		}
		return nil
	})
	if !found {
		s.Fatalf("the log of %s ended with %v, want a line \"ready\"", id, err)
	}
}

// destroy destroys a machine and checks that its log is empty.
func (s *suite) destroy(id bourse.MachineID) {
	s.Helper()
	if err := s.d.Destroy(s.ctx, id); err != nil {
		s.Fatalf("Destroy: %v", err)
	}
	if l := s.logs(id, driver.LogQuery{}); len(l) > 0 {
		s.Errorf("got %d log lines of a destroyed machine, want none", len(l))
	}
}

// wantProcesses counts the processes of all tasks on the host, and reports a test error unless their number is want. If
// there are fewer, it waits for more to appear, because a newly executed process may not be recognizable yet.
func (s *suite) wantProcesses(want int) {
	s.Helper()
	if l, ok := s.host.(Lister); ok {
		got := l.Processes(s.T)
		for end := time.Now().Add(5 * time.Second); got < want && time.Now().Before(end); got = l.Processes(s.T) {
			runtime.Gosched()
		}
		if got != want {
			s.Errorf("%d task processes are running, want %d", got, want)
		}
	}
}
