package containerdtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
)

// patience bounds every wait for a containerd: far beyond what any takes.
const patience = 2 * time.Minute

// Server is a containerd of a test.
type Server struct {
	Address string // path of its socket
	Dir     string // its root, state, configuration and log are below

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

// config keeps out what tests do not use: it makes the start quick.
const config = `version = 2
root = %q
state = %q
disabled_plugins = [
	"io.containerd.grpc.v1.cri", "io.containerd.internal.v1.tracing", "io.containerd.tracing.processor.v1.otlp",
	"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
	"io.containerd.snapshotter.v1.zfs", "io.containerd.internal.v1.opt",
]
[grpc]
	address = %q
[debug]
	level = "warn"
`

// New starts a containerd that the test has for itself. It is ended, and
// looked after, when the test ends. The test is skipped, with the reason, on a
// host that cannot run one.
func New(tb testing.TB) *Server {
	tb.Helper()
	if why := missing(); why != "" {
		tb.Skip("no containerd for this test: " + why)
	}
	s, err := create()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if left := s.close(); len(left) > 0 {
			tb.Errorf("containerd's containers left behind: %q", left)
		}
	})
	return s
}

// missing returns what a host lacks to run containers for tests.
func missing() string {
	if os.Geteuid() != 0 {
		return "only root can run it"
	}
	for _, name := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(name); err != nil {
			return name + " is not installed (Debian's packages are containerd and runc)"
		}
	}
	return ""
}

// create makes a server and starts it.
func create() (*Server, error) {
	// Not tb.TempDir: the path of a socket is at most 107 bytes long.
	dir, err := os.MkdirTemp("", "cd")
	if err != nil {
		return nil, err
	}
	s := &Server{Dir: dir, Address: filepath.Join(dir, "sock")}
	text := fmt.Sprintf(config, filepath.Join(dir, "root"), filepath.Join(dir, "state"), s.Address)
	if err := os.WriteFile(s.file("config.toml"), []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *Server) file(name string) string { return filepath.Join(s.Dir, name) }

// start starts the process and returns when it serves.
func (s *Server) start() error {
	log, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Not of a test's context: the server may be shared by several.
	cmd := exec.CommandContext(context.Background(), "containerd", "--config", s.file("config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	s.ended = make(chan struct{})
	if err := startFromOwnThread(cmd, s.ended); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	s.cmd = cmd
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c, err := containerd.New(s.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		// A refused connection is tried again after a second only, so look for
		// the socket first.
		if _, err := os.Stat(s.Address); err == nil {
			if ok, err := c.IsServing(ctx); ok && err == nil {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	text, _ := os.ReadFile(s.file("log"))
	return fmt.Errorf("containerd does not serve after %s; its log:\n%s", patience, text)
}

// startFromOwnThread starts a process from a thread that exists until ended is
// closed: a process that ends with its parent ends with the thread that started it, and
// tests end threads that were in other namespaces.
func startFromOwnThread(cmd *exec.Cmd, ended <-chan struct{}) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		result <- err
		if err == nil {
			<-ended
		}
	}()
	return <-result
}

// Kill ends the containerd with SIGKILL; its containers go on. A second Kill
// does nothing.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.kill()
}

func (s *Server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // it has ended by itself otherwise
		_ = s.cmd.Wait()
		close(s.ended)
		s.cmd = nil
		_ = os.Remove(s.Address) // so that no client connects to the old socket meanwhile
	}
}

// Restart starts a killed containerd again, in the same place. One that runs
// is killed first.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.kill()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Client returns a client of the server for a namespace; it is closed when the
// test ends.
func (s *Server) Client(tb testing.TB, namespace string) *containerd.Client {
	tb.Helper()
	c, err := containerd.New(s.Address, containerd.WithDefaultNamespace(namespace))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// close ends the server and returns what its containers have left on the host.
func (s *Server) close() []string {
	var left []string
	if s.cmd != nil {
		left = s.Leftovers()
	}
	s.kill()
	// Even of a failed test nothing may stay: shims, then their mounts.
	left = append(left, sweep(s)...)
	if err := os.RemoveAll(s.Dir); err != nil {
		left = append(left, err.Error())
	}
	return left
}
