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

// "bourse dev" consists of two processes. The one that the user starts is the keeper.
// It only watches the inner process, which runs the cluster. If one of them is killed,
// the other cleans up. The inner process notices because its standard input is a pipe
// from the keeper. The keeper notices when its child exits. On Linux, processes that
// outlive the inner process become the keeper's children, so the keeper can find and
// kill them.

// keeperTimeout limits the time that the inner process may take to exit. It is longer
// than the time for which the inner process waits for its servers to exit.
const keeperTimeout = stopTimeout + killGrace + 5*time.Second

// duplicateSignal is the time during which a second signal counts as a duplicate of the
// first.
const duplicateSignal = 200 * time.Millisecond

// runKeeper runs the inner process until it exits, and stops it once ctx is done. A signal
// during the shutdown kills everything immediately.
func runKeeper(ctx context.Context, s *cli.Shell, d config) error {
	if err := d.portFree(); err != nil {
		return err
	}
	adoptOrphans()
	cli.IgnoreSIGPIPE()
	args := append(slices.Clip(s.Args), "--inner")
	if d.data == "" {
		d.removeLeftovers(s)
		dir, err := tempdir.Make(os.TempDir(), tempPrefix)
		if err != nil {
			return fmt.Errorf("create a directory for the servers' files: %w", err)
		}
		// The inner process removes the directory too, in case this process is killed.
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
	grace, killed := killGrace, false
	ended := make(chan error, 1)
	go func() { ended <- inner.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		grace, killed, err = endInner(s, lifeline, inner, ended)
	}
	_ = lifeline.Close() // the pipe may be closed already
	if left := killDescendants(grace, keeperTimeout); left > 0 {
		return bourse.Errorf(bourse.CodeInternal, "%s could not be killed", cli.Count(left, "process"))
	}
	exit, failed := errors.AsType[*exec.ExitError](err)
	if !failed {
		return err
	}
	if exit.ExitCode() >= 0 {
		return cli.ExitStatus(exit.ExitCode()) // the inner process has printed the reason
	}
	// The inner process was killed, so it has not cleaned up.
	if err := d.clear(); err != nil {
		s.Note("warning: " + err.Error())
	}
	if killed {
		return nil // the user requested it, or a message has explained it
	}
	return bourse.Errorf(bourse.CodeInternal, "the process that ran the cluster was terminated (%s); everything was cleaned up", exit)
}

const (
	tempPrefix = "bourse-dev-" // prefix of the names of clusters' temporary directories
	socketFile = "containerd"  // file in a temporary directory that contains the cluster's --containerd value
)

var errInUse = errors.New("its servers are still running")

// removeLeftovers removes the files, mounts and containerd namespaces of previous clusters
// whose keeper and inner process were both killed, for example because the host crashed.
func (d *config) removeLeftovers(s *cli.Shell) {
	removed, err := tempdir.RemoveLeftover(os.TempDir(), tempPrefix, func(dir string) error {
		if inUse(dir) {
			return errInUse // its servers may still be shutting down
		}
		socket, err := os.ReadFile(filepath.Join(dir, socketFile))
		if errors.Is(err, fs.ErrNotExist) {
			socket, err = []byte(d.containerd), nil
		}
		left := config{data: dir, containerd: string(socket), sweep: d.sweep}
		return errors.Join(err, left.clear(), loopback.RemoveSecret(s.Getenv, clusterNameOf(dir)))
	})
	if len(removed) > 0 {
		s.Note("removed leftovers of " + cli.Count(len(removed), "bourse dev") + " that had been killed")
	}
	if err != nil && !errors.Is(err, errInUse) {
		s.Note("warning: cannot remove leftovers of a killed bourse dev: " + err.Error())
	}
}

// clear removes the containerd namespaces and mounts that the cluster's servers left on
// this host. It must be called after the servers have exited.
func (d *config) clear() error {
	return d.sweep(context.Background(), d.containerd, namespacePrefix(d.data), d.data)
}

// startInner starts the process that runs the cluster. It puts that process into its own
// process group, so that Ctrl-C reaches only the keeper.
func startInner(args []string) (*exec.Cmd, *os.File, error) {
	c, err := selfCommand(args...)
	if err != nil {
		return nil, nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("create a pipe: %w", err)
	}
	c.Stdin, c.Stdout, c.Stderr = r, os.Stdout, os.Stderr
	err = c.Start()
	_ = r.Close() // the child has its own copy
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("start the cluster: %w", err), w.Close())
	}
	return c, w, nil
}

// endInner asks the inner process to exit. It kills the process if it takes too long,
// or on another signal. It returns the grace period for the remaining processes,
// whether it killed the inner process, and the inner process's exit status.
func endInner(s *cli.Shell, lifeline *os.File, inner *exec.Cmd, ended <-chan error) (grace time.Duration, killed bool, err error) {
	again := make(chan os.Signal, 1)
	// The handler is never removed, because further signals must not terminate this
	// process before it has cleaned up.
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	_ = lifeline.Close()
	began := time.Now()
	grace = killGrace
	late := time.After(keeperTimeout)
wait:
	for {
		select {
		case err := <-ended:
			return grace, false, err
		case <-again:
			if time.Since(began) < duplicateSignal {
				continue // the parent may have signaled both this process and its group
			}
			grace = killGrace / 4
			s.Note("killing everything")
			break wait
		case <-late:
			s.Note("the cluster does not stop; killing it")
			break wait
		}
	}
	_ = inner.Process.Kill() // the process may have exited already
	return grace, true, <-ended
}

// selfCommand returns a command that runs this program again under the same name, in
// its own process group.
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
