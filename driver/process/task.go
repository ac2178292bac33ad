package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/logs"
)

// task is one task in the supervisor. The table's mutex guards its status;
// what a task runs with is fixed before started is closed.
type task struct {
	id      driver.TaskID
	status  driver.Status
	started chan struct{} // closed when the start has succeeded or failed
	err     error         // of the start; read after started
	done    chan struct{} // closed when status.Exit is set

	pid     int
	at      time.Time     // of its start
	failure string        // why the supervisor killed it; under the table's mutex
	with    *surroundings // nil once it has ended
	output  *output
	log     *logs.Log
}

// surroundings are what a task's own program and its execs share.
type surroundings struct {
	env   []string
	dir   string
	user  *identity
	group group          // nil: the host has none
	apart *apart         // nil: it sees what the host sees
	over  chan struct{}  // closed when the task's program has ended
	forks sync.WaitGroup // of what is done to the group; added to before the fork, later under the table's mutex
}

// markVariable tells a task's processes, and all that they start with their
// environment, from others: BOURSE_TASK=<mark>/<machine>/<boot>.
const markVariable = "BOURSE_TASK"

func (s *supervisor) marked(env []string, id driver.TaskID) []string {
	out := make([]string, 0, len(env)+1)
	for _, kv := range env {
		if len(kv) <= len(markVariable) || kv[:len(markVariable)+1] != markVariable+"=" {
			out = append(out, kv)
		}
	}
	return append(out, fmt.Sprintf("%s=%s/%s/%d", markVariable, s.mark, id.Machine, id.Boot))
}

// launch starts the program of a task that has been entered in the table.
// here is the group that the calling thread stands in, nil for none.
func (s *supervisor) launch(t *task, sp *spec, here group) error {
	with, err := s.fork(t, sp, here)
	if err != nil {
		return err
	}
	s.limitSoon(t, with, sp.Limits)
	return nil
}

// fork makes what a task's program needs and executes it. The end of the program waits for with.forks to be done: for its
// limits.
func (s *supervisor) fork(t *task, sp *spec, here group) (with *surroundings, err error) {
	with = &surroundings{env: s.marked(stringsOf(sp.Env), t.id), dir: string(sp.Dir), user: sp.User, group: here, over: make(chan struct{})}
	if with.apart, err = apartOf(sp.Network, sp.Mounts); err != nil {
		return nil, err
	}
	if err := s.enterDir(t.id.Machine, with); err != nil {
		return nil, err
	}
	command := stringsOf(sp.Command)
	if len(command) == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	stdin, err := s.stdin(sp.Stdin)
	if err != nil {
		return nil, err
	}
	defer func() {
		if stdin != s.null {
			_ = stdin.Close() // the program has its own
		}
	}()
	stdout, outEnd, err := pipe()
	if err != nil {
		return nil, startError(command[0], with, err)
	}
	stderr, errEnd, err := pipe()
	if err != nil {
		return nil, errors.Join(startError(command[0], with, err), syscall.Close(stdout), syscall.Close(outEnd))
	}
	t.with = with
	lives := false
	files := [3]uintptr{stdin.Fd(), uintptr(outEnd), uintptr(errEnd)}
	with.forks.Add(1)
	born := func(pid int, g group) func(ended) {
		lives = true
		t.pid, t.at, with.group = pid, time.Now().UTC(), g
		t.output = newOutput(stdout, stderr, t.log)
		return func(e ended) { s.work.Go(func() { s.finish(t, e) }) }
	}
	_, err = s.run(s.grouping(), with, child{command: command, env: with.env, limits: sp.Limits, files: files, born: born})
	err = errors.Join(err, syscall.Close(outEnd), syscall.Close(errEnd))
	if !lives {
		with.apart.close()
		with.forks.Done()
		return nil, cmp.Or(err, errors.Join(syscall.Close(stdout), syscall.Close(stderr)))
	}
	return with, nil
}

// limitSoon sets the limits of a task that runs. Nobody waits for that: see
// standers.
func (s *supervisor) limitSoon(t *task, with *surroundings, l driver.Limits) {
	s.work.Go(func() {
		defer with.forks.Done()
		pause(respite, with.over)
		if with.group != nil {
			s.limit(t, with.group, l)
		}
	})
}

// respite is how long what nobody waits for is put off after a start, so that
// the answer and the new program have the processors.
const respite = time.Millisecond

// pause returns after d, or when over is closed.
func pause(d time.Duration, over <-chan struct{}) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-over:
	}
}

// limit sets a task's limits. A program that has taken more memory already
// than it may have is killed; so is one that cannot be limited, with the
// reason: a limit that the labels promise must hold.
func (s *supervisor) limit(t *task, g group, l driver.Limits) {
	err := g.limit(l)
	if err == nil || errors.Is(err, fs.ErrNotExist) { // it has ended already, and the group with it
		return
	}
	failure := "its limits could not be set: " + err.Error()
	if errors.Is(err, syscall.EBUSY) {
		failure = outOfMemory
	}
	s.mu.Lock()
	t.failure = failure
	s.mu.Unlock()
	killGroup(t.pid, syscall.SIGKILL)
}

// outOfMemory marks a task that was killed because its limit was too small
// to begin with.
const outOfMemory = "out of memory"

// finish does what is to be done when a task's program has ended: everything
// it has left behind is killed, its output written, its group removed. Only
// then is the end told.
func (s *supervisor) finish(t *task, e ended) {
	s.mu.Lock()
	with := t.with
	t.with = nil // no exec begins any more
	s.mu.Unlock()
	close(with.over)
	with.forks.Wait()
	with.apart.close()
	g := with.group
	if g != nil {
		g.killAll(killGrace)
	} else {
		s.killStrays(t.id)
	}
	awaitGroup(t.pid, killGrace)
	t.output.finish(drainGrace)
	exit := exitOf(e)
	if g != nil {
		exit.OOMKilled = exit.Failed() && g.oomKilled()
		if err := g.remove(); err != nil {
			s.log.Warn("a task's cgroup remains", "machine", t.id.Machine, "err", err)
		}
	}
	s.end(t, exit)
}

func exitOf(e ended) bourse.Exit {
	exit := bourse.Exit{Code: -1, At: e.at}
	switch {
	case e.status.Signaled():
		exit.Signal = int(e.status.Signal())
	case e.status.Exited():
		exit.Code = e.status.ExitStatus()
	}
	return exit
}

// ended tells whether the task's end is known. It must have started.
func (t *task) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// stop is driver.Driver's Stop.
func (s *supervisor) stop(ctx context.Context, t *task, signal syscall.Signal, timeout time.Duration) error {
	if t.ended() {
		return nil
	}
	killGroup(t.pid, signal)
	if signal != syscall.SIGSTOP && signal != syscall.SIGTSTP {
		killGroup(t.pid, syscall.SIGCONT) // a halted process could not act on it
	}
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	killGroup(t.pid, syscall.SIGKILL)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
