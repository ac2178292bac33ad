package process

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
	"github.com/bourse-dev/bourse/driver/logs"
)

// task is the supervisor's entry for a task. supervisor.mu guards the fields that are marked below. The other
// fields do not change after started is closed.
type task struct {
	id      driver.TaskID
	status  driver.Status // guarded by supervisor.mu
	started chan struct{} // closed when the start has succeeded or failed
	err     error         // why the start failed; read only after started is closed
	done    chan struct{} // closed when status.Exit is set

	pid    int
	at     time.Time // time of the start
	with   *taskEnv  // guarded by supervisor.mu; nil once the task has ended
	output *output   // guarded by supervisor.mu; nil once the task has ended
	log    *logs.Log
}

// taskEnv is the environment that a task's program shares with the commands executed in the task.
type taskEnv struct {
	env       []string
	dir       string
	user      *identity
	group     cgroup.Group   // nil if the host has no usable cgroups
	isolation *isolation     // nil if the task has the host's network, directories and name servers
	forks     sync.WaitGroup // users of the environment; after the task's start, incremented only while supervisor.mu is held

	freezing sync.RWMutex // locked to freeze and thaw the group; locked for reading while an exec forks
	frozen   bool         // guarded by freezing
}

// markVariable is the name of the environment variable that marks a task's processes and their descendants. Its
// value is <mark>/<machine>/<boot>.
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

// launch prepares the environment of a task that is in the table, and starts its program. When the program ends, finish
// is called, which waits until launch no longer uses the environment.
func (s *supervisor) launch(t *task, sp *spec) (err error) {
	with := &taskEnv{env: s.marked(stringsOf(sp.Env), t.id), dir: string(sp.Dir), user: sp.User}
	if with.isolation, err = isolationOf(sp.Network, sp.Mounts); err != nil {
		return err
	}
	if err := s.enterDir(t.id.Machine, with); err != nil {
		return err
	}
	command := stringsOf(sp.Command)
	if len(command) == 0 {
		return bourse.Errorf(bourse.CodeInvalid, "no command")
	}
	stdin, err := s.stdin(sp.Stdin)
	if err != nil {
		return err
	}
	defer func() {
		if stdin != s.devNull {
			_ = stdin.Close() // the program has its own copy of the descriptor
		}
	}()
	stdout, outEnd, err := pipe()
	if err != nil {
		return startError(command[0], with, err)
	}
	stderr, errEnd, err := pipe()
	if err != nil {
		return errors.Join(startError(command[0], with, err), syscall.Close(stdout), syscall.Close(outEnd))
	}
	t.with = with
	lives := false
	files := [3]uintptr{stdin.Fd(), uintptr(outEnd), uintptr(errEnd)}
	with.forks.Add(1)
	defer with.forks.Done()
	born := func(pid int) func(ended) {
		lives = true
		t.pid, t.at = pid, time.Now().UTC()
		t.output = newOutput(stdout, stderr, t.log)
		return func(e ended) { s.work.Go(func() { s.finish(t, e) }) }
	}
	if with.group, err = s.grouping().New(sp.Limits); err != nil {
		err = bourse.Errorf(bourse.CodeUnavailable, "create the task's cgroup: %w", err)
	} else {
		_, err = s.run(with, child{command: command, env: with.env, files: files, started: born})
	}
	err = errors.Join(err, syscall.Close(outEnd), syscall.Close(errEnd))
	if !lives {
		if with.group != nil {
			err = errors.Join(err, with.group.Remove())
		}
		with.isolation.close()
		return cmp.Or(err, errors.Join(syscall.Close(stdout), syscall.Close(stderr)))
	}
	return nil
}

// finish cleans up after a task's program has ended: it kills all remaining processes, waits until the output has been
// logged, and removes the task's cgroup. Then it reports the exit.
func (s *supervisor) finish(t *task, e ended) {
	s.mu.Lock()
	with := t.with
	t.with = nil // prevents new execs
	s.mu.Unlock()
	with.forks.Wait()
	with.isolation.close()
	g := with.group
	if g != nil {
		g.KillAll(killGrace)
	} else {
		s.killStrays(t.id)
	}
	awaitGroup(t.pid, killGrace)
	t.output.finish(drainGrace)
	exit := exitOf(e)
	if g != nil {
		exit.OOMKilled = exit.Failed() && g.OOMKilled()
		if err := g.Remove(); err != nil {
			s.log.Warn("remove task's cgroup failed", "machine", t.id.Machine, "err", err)
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

// ended reports whether the task's exit has been recorded. The task must have started.
func (t *task) ended() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// stop implements driver.Driver's Stop.
func (s *supervisor) stop(ctx context.Context, t *task, signal syscall.Signal, timeout time.Duration) error {
	if t.ended() {
		return nil
	}
	killGroup(t.pid, signal)
	if signal != syscall.SIGSTOP && signal != syscall.SIGTSTP {
		killGroup(t.pid, syscall.SIGCONT) // a stopped process cannot handle the signal
	}
	s.thaw(t, signal == syscall.SIGKILL)
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
	}
	s.kill(t)
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
