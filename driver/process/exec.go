package process

import (
	"cmp"
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/companion"
)

// serveExec runs a command in a task's environment. files are the descriptors that were sent with the request, for the
// command's stdin, stdout and stderr. The daemon itself reads and writes the other ends of these files. If the
// connection breaks, serveExec kills the command's process group. If this process dies, its successor kills the
// command.
func (s *supervisor) serveExec(ctx context.Context, conn *net.UnixConn, req *request, files []int) error {
	answer := &reply{ID: req.ID}
	exit, err := s.exec(ctx, conn, req, files)
	if err != nil {
		answer.Error = companion.ErrorOf(err)
	} else {
		answer.Exit = &exit
	}
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	return companion.WriteFrame(conn, answer)
}

func (s *supervisor) exec(ctx context.Context, conn *net.UnixConn, req *request, files []int) (bourse.Exit, error) {
	var none bourse.Exit
	closeFiles := sync.OnceFunc(func() { closeAll(files) })
	defer closeFiles()
	if len(files) != 3 || len(req.Command) == 0 {
		return none, bourse.Errorf(bourse.CodeInvalid, "exec requires a command and 3 files; got %d arguments and %d files", len(req.Command), len(files))
	}
	t, err := s.find(req.Task)
	if err != nil {
		return none, err
	}
	with := s.join(t)
	if with == nil {
		return none, errEnded(req.Task)
	}
	with.freezing.RLock()
	leave := sync.OnceFunc(func() { with.freezing.RUnlock(); with.forks.Done() })
	defer leave()
	if with.frozen {
		return none, errFrozen(req.Task)
	}
	end := make(chan ended, 1) // buffered, so that reporting the command's end does not block
	p := child{
		command: stringsOf(req.Command), env: with.env, terminal: req.Terminal,
		files:   [3]uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])},
		started: func(int) func(ended) { return func(e ended) { end <- e } },
	}
	if p.terminal {
		p.env = withTerm(p.env, req.Term)
		if u := with.user; u != nil {
			_ = syscall.Fchown(files[0], int(u.UID), -1) // so that the command can open the terminal by name
		}
	}
	pid, err := s.run(with, p)
	leave()
	closeFiles()
	if err != nil {
		return none, err
	}
	gone := make(chan struct{})
	s.work.Go(func() {
		defer close(gone)
		var b [1]byte
		_, _ = conn.Read(b[:]) // the client does not send anything else, so this returns when it disconnects
	})
	e, ok := s.awaitExec(ctx, t, running{pid: pid, terminal: p.terminal, end: end}, gone)
	if p.terminal {
		killSession(pid)
	}
	if !ok {
		return none, bourse.Errorf(bourse.CodeCanceled, "the command was killed")
	}
	awaitGroup(pid, killGrace)
	return exitOf(e), nil
}

// withTerm returns env with TERM set to term, or to xterm if term is empty.
func withTerm(env []string, term string) []string {
	out := slices.DeleteFunc(slices.Clone(env), func(kv string) bool { return strings.HasPrefix(kv, "TERM=") })
	return append(out, "TERM="+cmp.Or(term, "xterm"))
}

// join returns a running task's environment, or nil if the task has ended. The caller must call the environment's
// forks.Done when it no longer uses the environment.
func (s *supervisor) join(t *task) *taskEnv {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.with != nil {
		t.with.forks.Add(1)
	}
	return t.with
}

// running is a command that Exec is running in a task.
type running struct {
	pid      int
	terminal bool
	end      <-chan ended
}

// awaitExec waits until a command ends. If the client disconnects or the task ends first, it kills the command. It
// returns false if the client has disconnected.
func (s *supervisor) awaitExec(ctx context.Context, t *task, r running, gone <-chan struct{}) (ended, bool) {
	select {
	case e := <-r.end:
		return e, true
	case <-t.done:
	case <-gone:
		if e, ok := r.hangUp(ctx, t); ok {
			return e, false
		}
	case <-ctx.Done():
	}
	killGroup(r.pid, syscall.SIGKILL)
	e := <-r.end
	select {
	case <-gone:
		return e, false
	default:
		return e, true
	}
}

// hangUp sends SIGHUP to a command in a terminal after the client has disconnected. If the command ends within
// hangupGrace, while its task is still running, hangUp returns the command's exit status and true. It returns false if
// the command has no terminal.
func (r running) hangUp(ctx context.Context, t *task) (ended, bool) {
	if !r.terminal {
		return ended{}, false
	}
	killGroup(r.pid, syscall.SIGHUP)
	killGroup(r.pid, syscall.SIGCONT) // a stopped process cannot handle the signal
	timer := time.NewTimer(hangupGrace)
	defer timer.Stop()
	select {
	case e := <-r.end:
		return e, true
	case <-t.done:
	case <-ctx.Done():
	case <-timer.C:
	}
	return ended{}, false
}
