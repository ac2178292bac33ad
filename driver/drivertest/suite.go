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

// Harness is what the suite needs of a driver.
type Harness struct {
	// New makes an empty host. What it leaves behind is cleaned up by
	// t.Cleanup, and checked: no process, file, cgroup or goroutine may remain.
	New func(t *testing.T) Host
	// Image of the tasks; default bourse.ImageHost.
	Image string
	// Env is given to every task, PATH say.
	Env      []string
	Programs Programs
	Many     int // machines of the case "many at once"; default 200
}

// Host is a machine on which drivers run.
type Host interface {
	// Open makes the driver of a daemon that has just started. The one before
	// is cut off as if its daemon had been killed; its tasks go on.
	Open(t *testing.T) driver.Driver
}

// MachineryKiller is a Host whose driver has machinery of its own, a
// supervisor say, that can be killed.
type MachineryKiller interface {
	KillMachinery(t *testing.T)
}

// Lister is a Host that can tell what the machines' tasks have running on it,
// by asking the system and not the driver.
type Lister interface {
	// Processes returns how many processes run of all tasks of the host.
	Processes(t *testing.T) int
}

// Programs are the commands that the suite runs. Cases whose program is nil
// are skipped, and say so.
type Programs struct {
	Run      []string                                  // prints "ready", goes on until a signal ends it
	Ignore   []string                                  // as Run, but only SIGKILL ends it
	Exit     func(code int) []string                   // ends at once
	Print    func(stdout, stderr string) []string      // prints a line to each and ends with 0
	Lines    func(from, to int) []string               // prints "line N" for from <= N < to and ends with 0
	Slow     func(n int, pause time.Duration) []string // as Lines, waiting between them
	Sleep    func(d time.Duration, code int) []string  // ends after d
	Env      func(name string) []string                // prints a variable's value
	Dir      []string                                  // prints its working directory
	User     []string                                  // prints the number of its user, and fails unless Task.User was used
	Cat      []string                                  // copies stdin to stdout
	LateCat  []string                                  // as Cat, a moment after its start
	Echo     func(text string) []string                // prints text, an argument of the program
	Tree     []string                                  // prints "ready"; children and grandchildren, some ignoring signals, until it is ended
	Leaver   []string                                  // ends at once with 0, leaves children in its process group behind
	Escaper  []string                                  // ends at once with 0, leaves a child in another session that holds its output open
	Allocate func(m bourse.MiB) []string               // touches that much memory, prints "allocated", ends with 0
	Forks    func(n int) []string                      // runs n processes at once, ends with 0 if all could be started
	Busy     []string                                  // prints "ready", then uses a processor until a signal ends it
	Read     func(path string) []string                // copies a file to stdout, fails without one
	Write    func(path, text string) []string          // writes a file, fails if it cannot
	Networks []string                                  // prints the names of the network interfaces that it sees, one a line
	Converse []string                                  // as Cat, each line as it comes
	Terminal []string                                  // ends with 0 if its stdin, stdout and stderr are a terminal, its own, and prints $TERM
	Size     []string                                  // prints "size <rows> <columns>" of its terminal, and again when it changes; ends with 7 at a line of input
	Missing  []string                                  // does not exist
	Refused  []string                                  // exists and is not executable
}

// deadline bounds every wait of the suite: far beyond what any of it takes.
const deadline = 3 * time.Minute

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	if h.Image == "" {
		h.Image = bourse.ImageHost
	}
	if h.Many == 0 {
		h.Many = 200
	}
	for _, group := range []map[string]func(*suite){
		lifeCases, signalCases, outputCases, execCases, streamCases, terminalCases,
		stdinCases, limitCases, freezeCases, usageCases, apartCases, recoverCases,
	} {
		for name, run := range group {
			t.Run(name, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				defer cancel()
				s := &suite{T: t, h: h, p: h.Programs, ctx: ctx, host: h.New(t)}
				s.reopen()
				run(s)
			})
		}
	}
}

// suite is one case being run.
type suite struct {
	*testing.T
	h     Harness
	p     Programs
	ctx   context.Context //nolint:containedctx // the case's, which its helpers share
	host  Host
	d     driver.Driver
	count atomic.Int64
}

// reopen kills the daemon and returns what the next one recovers.
func (s *suite) reopen() []driver.Status {
	s.Helper()
	s.d = s.host.Open(s.T)
	got, err := s.d.Recover(s.ctx)
	if err != nil {
		s.Fatalf("Recover: %v", err)
	}
	return got
}

// need skips the case unless the harness has a program for it.
func (s *suite) need(what string, has bool) {
	s.Helper()
	if !has {
		s.Skipf("the harness has no program for %s", what)
	}
}

// task returns the first boot of a new machine.
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

// start starts a task that must start.
func (s *suite) start(task driver.Task) driver.Status {
	s.Helper()
	status, err := s.d.Start(s.ctx, task)
	if err != nil {
		s.Fatalf("Start %v: %v", task.Command, err)
	}
	if status.ID != task.ID || status.StartedAt.IsZero() {
		s.Fatalf("Start gave %+v, want the status of %v", status, task.ID)
	}
	return status
}

// wait waits for the end of a task.
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

// run starts a task and waits for its end.
func (s *suite) run(task driver.Task) bourse.Exit {
	s.Helper()
	s.start(task)
	return s.wait(task.ID)
}

// wantCode fails unless err has the code.
func (s *suite) wantCode(what string, err error, want bourse.Code) {
	s.Helper()
	if got := bourse.CodeOf(err); got != want {
		s.Errorf("%s: got %q (%v), want %q", what, got, err, want)
	}
}

// logs returns a machine's lines.
func (s *suite) logs(id bourse.MachineID, want driver.LogQuery) []driver.LogLine {
	s.Helper()
	var out []driver.LogLine
	if err := s.d.Logs(s.ctx, id, want, func(l driver.LogLine) error { out = append(out, l); return nil }); err != nil {
		s.Fatalf("Logs: %v", err)
	}
	return out
}

// texts returns the lines of one stream with their pieces put together.
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

// awaitReady follows a machine's log until it says "ready".
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
		s.Fatalf("the log of %s ended without \"ready\": %v", id, err)
	}
}

// destroy destroys a machine and looks that nothing of it is left.
func (s *suite) destroy(id bourse.MachineID) {
	s.Helper()
	if err := s.d.Destroy(s.ctx, id); err != nil {
		s.Fatalf("Destroy: %v", err)
	}
	if l := s.logs(id, driver.LogQuery{}); len(l) > 0 {
		s.Errorf("a destroyed machine has %d log lines", len(l))
	}
}

// wantProcesses fails unless so many processes of tasks run on the host. One
// that has just been executed may not show yet whose it is.
func (s *suite) wantProcesses(want int) {
	s.Helper()
	if l, ok := s.host.(Lister); ok {
		got := l.Processes(s.T)
		for end := time.Now().Add(5 * time.Second); got < want && time.Now().Before(end); got = l.Processes(s.T) {
			runtime.Gosched()
		}
		if got != want {
			s.Errorf("%d processes of tasks run, want %d", got, want)
		}
	}
}
