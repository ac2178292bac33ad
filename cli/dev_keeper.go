package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// "bourse dev" is two processes. The one that a person starts, the keeper,
// only watches the inner one, which runs the cluster. Each cleans up when the
// other is killed: the inner one notices by its standard input, a pipe whose
// other end dies with the keeper; the keeper, because the processes that the
// inner one leaves behind become its own children (on Linux), which it can
// then find and kill.

// keeperPatience bounds how long the inner process may take to end: longer
// than that one gives its servers.
const keeperPatience = devPatience + devGrace + 5*time.Second

// samePress is how long a second signal counts as the first one's echo.
const samePress = 200 * time.Millisecond

// keepDev runs the inner process until it ends, or until ctx does and then
// ends it. A signal that comes while the cluster is being stopped ends
// everything at once.
func (s *shell) keepDev(ctx context.Context, d devConfig) error {
	if err := d.portFree(); err != nil {
		return err
	}
	adoptOrphans()
	outliveReaders()
	args := append(slices.Clip(s.args), "--inner")
	if d.data == "" {
		dir, err := os.MkdirTemp("", "bourse-dev-")
		if err != nil {
			return fmt.Errorf("make a directory for the servers' files: %w", err)
		}
		// The inner process removes it as well: this one may not live to.
		defer func() { _ = os.RemoveAll(dir) }()
		args = append(args, "--temporary", "--data", dir)
	}
	inner, lifeline, err := s.startInner(args)
	if err != nil {
		return err
	}
	grace := devGrace
	ended := make(chan error, 1)
	go func() { ended <- inner.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace, err = s.endInner(lifeline, inner, ended)
	}
	_ = lifeline.Close() // may be closed already
	if left := killDescendants(grace, keeperPatience); left > 0 {
		return bourse.Errorf(bourse.CodeInternal, "%s could not be killed", count(left, "process"))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() < 0 {
			return bourse.Errorf(bourse.CodeInternal, "the process that ran the cluster has ended (%s); everything was cleaned up", exit)
		}
		return remoteExit(exit.ExitCode()) // it has told why
	}
	return err
}

// startInner starts the process that runs the cluster, in a process group of
// its own, so that Ctrl-C reaches the keeper alone.
func (s *shell) startInner(args []string) (*exec.Cmd, *os.File, error) {
	c, err := selfCommand(args...)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("make a pipe: %w", err)
	}
	c.Stdin, c.Stdout, c.Stderr = r, os.Stdout, os.Stderr
	err = c.Start()
	_ = r.Close() // the child has its own copy
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the cluster: %w", err), w.Close())
	}
	return c, w, nil
}

// endInner lets the inner process end in good order, or at once on another
// signal or when it takes too long. It gives the grace for what is left.
func (s *shell) endInner(lifeline *os.File, inner *exec.Cmd, ended <-chan error) (time.Duration, error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	_ = lifeline.Close()
	began, grace := time.Now(), devGrace
	late := time.After(keeperPatience)
wait:
	for {
		select {
		case err := <-ended:
			return grace, err
		case <-again:
			if time.Since(began) < samePress {
				continue // what runs us may send a signal to us and to our group
			}
			grace = devGrace / 4
			s.say("killing everything")
			break wait
		case <-late:
			s.say("the cluster does not end: killing it")
			break wait
		}
	}
	_ = inner.Process.Kill() // it may have ended meanwhile
	<-ended
	return grace, nil
}

// selfCommand runs this very program again, with its own name and in a
// process group of its own.
func selfCommand(args ...string) (*exec.Cmd, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return &exec.Cmd{
		Path: exe, Args: append([]string{os.Args[0]}, args...),
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}, nil
}
