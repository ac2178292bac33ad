package process

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
)

// serveExec runs a command beside a task. Its stdin, stdout and stderr came
// with the request; the daemon reads them itself. The connection's end, by
// either side's death, kills the command's process group.
func (s *supervisor) serveExec(ctx context.Context, conn *net.UnixConn, req *request, files []int) error {
	answer := &reply{ID: req.ID}
	exit, err := s.exec(ctx, conn, req, files)
	if err != nil {
		answer.Error = wireErrorOf(err)
	} else {
		answer.Exit = &exit
	}
	_ = conn.SetWriteDeadline(time.Now().Add(sendTimeout))
	return writeFrame(conn, answer)
}

func (s *supervisor) exec(ctx context.Context, conn *net.UnixConn, req *request, files []int) (bourse.Exit, error) {
	var none bourse.Exit
	closeFiles := sync.OnceFunc(func() { closeAll(files) })
	defer closeFiles()
	if len(files) != 3 || len(req.Command) == 0 {
		return none, bourse.Errorf(bourse.CodeInvalid, "an exec needs a command and three files, not %d", len(files))
	}
	t, err := s.find(req.Task)
	if err != nil {
		return none, err
	}
	with := s.join(t)
	if with == nil {
		return none, errEnded(req.Task)
	}
	groups := grouping(ungrouped{})
	if with.group != nil {
		groups = s.groups
	}
	end := make(chan ended, 1) // one child, one end
	fds := [3]uintptr{uintptr(files[0]), uintptr(files[1]), uintptr(files[2])}
	pid, err := s.run(groups, with, driver.Limits{}, stringsOf(req.Command), fds, func(int, group) func(ended) {
		return func(e ended) { end <- e }
	})
	with.forks.Done()
	closeFiles()
	if err != nil {
		return none, err
	}
	gone := make(chan struct{})
	s.work.Go(func() {
		defer close(gone)
		var b [1]byte
		_, _ = conn.Read(b[:]) // nothing more is sent: this is its end
	})
	e, ok := s.awaitExec(ctx, t, pid, end, gone)
	if !ok {
		return none, bourse.Errorf(bourse.CodeCanceled, "the command was killed")
	}
	awaitGroup(pid, killGrace)
	return exitOf(e), nil
}

// join gives the surroundings of a task that runs, nil once it has ended. The
// caller must call forks.Done when it has forked.
func (s *supervisor) join(t *task) *surroundings {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.with != nil {
		t.with.forks.Add(1)
	}
	return t.with
}

// awaitExec waits for a command's end and kills it when it is not wanted any
// more: by who asked for it, or because its task has ended.
func (s *supervisor) awaitExec(ctx context.Context, t *task, pid int, end <-chan ended, gone <-chan struct{}) (ended, bool) {
	select {
	case e := <-end:
		return e, true
	case <-t.done:
	case <-gone:
	case <-ctx.Done():
	}
	killGroup(pid, syscall.SIGKILL)
	e := <-end
	select {
	case <-gone:
		return e, false
	default:
		return e, true
	}
}
