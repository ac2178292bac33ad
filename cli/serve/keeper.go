package serve

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
	"github.com/bourse-dev/bourse/internal/loopback"
	"github.com/bourse-dev/bourse/internal/tempdir"
)

// "bourse dev" is two processes. The one that a person starts, the keeper,
// only watches the inner one, which runs the cluster. Each cleans up when the
// other is killed: the inner one notices by its standard input, a pipe whose
// other end dies with the keeper; the keeper, because the processes that the
// inner one leaves behind become its own children (on Linux), which it can
// then find and kill.

// keeperPatience bounds how long the inner process may take to end: longer
// than that one grants its servers.
const keeperPatience = stopPatience + killGrace + 5*time.Second

// samePress is how long a second signal counts as the first one's echo.
const samePress = 200 * time.Millisecond

// keep runs the inner process until it ends, or until ctx does and then
// ends it. A signal that comes while the cluster is being stopped ends
// everything at once.
func keep(ctx context.Context, s *cli.Shell, d config) error {
	if err := d.portFree(); err != nil {
		return err
	}
	adoptOrphans()
	cli.OutliveReaders()
	args := append(slices.Clip(s.Args), "--inner")
	if d.data == "" {
		d.removeLeft(s)
		dir, err := tempdir.Make(os.TempDir(), tempPrefix)
		if err != nil {
			return fmt.Errorf("make a directory for the servers' files: %w", err)
		}
		// The inner process removes it as well: this one may not live to.
		defer func() { _ = dir.Remove() }()
		d.data = dir.Path
		if err := os.WriteFile(filepath.Join(dir.Path, socketFile), []byte(d.containerd), 0o600); err != nil {
			return fmt.Errorf("write to the servers' directory: %w", err)
		}
		args = append(args, "--temporary", "--data", dir.Path)
	}
	inner, lifeline, err := startInner(args)
	if err != nil {
		return err
	}
	grace := killGrace
	ended := make(chan error, 1)
	go func() { ended <- inner.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace, err = endInner(s, lifeline, inner, ended)
	}
	_ = lifeline.Close() // may be closed already
	if left := killDescendants(grace, keeperPatience); left > 0 {
		return bourse.Errorf(bourse.CodeInternal, "%s could not be killed", cli.Count(left, "process"))
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if exit.ExitCode() < 0 {
			if err := d.clear(); err != nil {
				s.Note("warning: " + err.Error())
			}
			return bourse.Errorf(bourse.CodeInternal, "the process that ran the cluster has ended (%s); everything was cleaned up", exit)
		}
		return cli.ExitStatus(exit.ExitCode()) // it has printed why
	}
	return err
}

const (
	tempPrefix = "bourse-dev-" // begins the names of the temporary directories of clusters
	socketFile = "containerd"  // in such a directory: what its cluster was told of containerd
)

var errInUse = errors.New("its servers still run")

// removeLeft removes what clusters have left of which both processes were killed, or
// whose host died.
func (d *config) removeLeft(s *cli.Shell) {
	removed, err := tempdir.RemoveLeft(os.TempDir(), tempPrefix, func(dir string) error {
		if inUse(dir) {
			return errInUse // its servers are ending
		}
		socket, err := os.ReadFile(filepath.Join(dir, socketFile))
		if errors.Is(err, fs.ErrNotExist) {
			socket, err = []byte(d.containerd), nil
		}
		left := config{data: dir, containerd: string(socket), sweep: d.sweep}
		return errors.Join(err, left.clear(), loopback.RemoveSecret(s.Getenv, clusterNameOf(dir)))
	})
	if len(removed) > 0 {
		s.Note("removed what was left of " + cli.Count(len(removed), "bourse dev") + " that had been killed")
	}
	if err != nil && !errors.Is(err, errInUse) {
		s.Note("warning: remove what is left of a bourse dev that was killed: " + err.Error())
	}
}

// clear removes what the cluster's servers, which have ended, still have on this host
// beside files.
func (d *config) clear() error {
	return d.sweep(context.Background(), d.containerd, namespacePrefix(d.data), d.data)
}

// startInner starts the process that runs the cluster, in a process group of
// its own, so that Ctrl-C reaches the keeper alone.
func startInner(args []string) (*exec.Cmd, *os.File, error) {
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
// signal or when it takes too long. It returns the grace for what is left.
func endInner(s *cli.Shell, lifeline *os.File, inner *exec.Cmd, ended <-chan error) (time.Duration, error) {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(again)
	_ = lifeline.Close()
	began, grace := time.Now(), killGrace
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
			grace = killGrace / 4
			s.Note("killing everything")
			break wait
		case <-late:
			s.Note("the cluster does not end: killing it")
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
