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

// timeout limits each wait for containerd. It is far longer than containerd normally needs.
const timeout = 2 * time.Minute

// Server is a test's containerd.
type Server struct {
	Address string // path of its socket
	Dir     string // directory that contains its root, state, configuration and log

	cmd   *exec.Cmd
	ended chan struct{} // closed when cmd has ended
}

// config disables unused plugins for a fast start.
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

// New starts a containerd for one test. When the test ends, it stops the containerd and
// checks for leftovers. It skips the test if the host cannot run containerd.
func New(tb testing.TB) *Server {
	tb.Helper()
	if why := missing(); why != "" {
		tb.Skip("containerd is not available for this test: " + why)
	}
	s, err := create()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if left := s.close(); len(left) > 0 {
			tb.Errorf("got leftovers of containers %q, want none", left)
		}
	})
	return s
}

// missing returns the programs and permissions that the host lacks to run containers.
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

// create creates and starts a server.
func create() (*Server, error) {
	// The path from tb.TempDir may be too long for a socket, whose path may have at most 107 bytes.
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

// start starts the process and waits until it serves requests.
func (s *Server) start() error {
	log, err := os.OpenFile(s.file("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	// Do not use a test's context, because tests may share the server.
	cmd := exec.CommandContext(context.Background(), "containerd", "--config", s.file("config.toml"))
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = dieWithParent()
	s.ended = make(chan struct{})
	if err := startFromOwnThread(cmd, s.ended); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	s.cmd = cmd
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c, err := containerd.New(s.Address)
	if err != nil {
		return err
	}
	defer c.Close()
	for ctx.Err() == nil {
		// A client waits for a second after a refused connection, so check first that the socket
		// exists.
		if _, err := os.Stat(s.Address); err == nil {
			if ok, err := c.IsServing(ctx); ok && err == nil {
				return nil
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	text, _ := os.ReadFile(s.file("log"))
	return fmt.Errorf("containerd did not become ready within %s; its log:\n%s", timeout, text)
}

// startFromOwnThread starts a process from a separate thread, which runs until ended is closed.
// This is necessary because a process with a parent death signal is killed when the thread that
// started it ends, and a thread ends early if a test uses it to enter other namespaces.
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

// Kill kills the containerd with SIGKILL. Its containers keep running. A second call has no effect.
func (s *Server) Kill(tb testing.TB) {
	tb.Helper()
	s.kill()
}

func (s *Server) kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill() // the process may have exited
		_ = s.cmd.Wait()
		close(s.ended)
		s.cmd = nil
		_ = os.Remove(s.Address) // so that clients do not connect to the old socket
	}
}

// Restart starts the containerd again with the same directory. If it is running, Restart
// kills it first.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.kill()
	if err := s.start(); err != nil {
		tb.Fatal(err)
	}
}

// Client returns a client for a containerd namespace. The client is closed when the test ends.
func (s *Server) Client(tb testing.TB, namespace string) *containerd.Client {
	tb.Helper()
	c, err := containerd.New(s.Address, containerd.WithDefaultNamespace(namespace))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// close stops the server and returns the leftovers of its containers on the host.
func (s *Server) close() []string {
	var left []string
	if s.cmd != nil {
		left = s.Leftovers()
	}
	s.kill()
	// A failed test must not leave shims or mounts behind either.
	left = append(left, sweep(s)...)
	if err := os.RemoveAll(s.Dir); err != nil {
		left = append(left, err.Error())
	}
	return left
}
