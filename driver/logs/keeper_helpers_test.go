package logs

import (
	"bufio"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/internal/companion"
)

var keeperCommand = []string{"/proc/self/exe", "keeper"}

// newKeeper returns a keeper in a new directory. At the end of the test, it checks that the keeper leaves nothing
// behind.
func newKeeper(t *testing.T, change func(*KeeperConfig)) *Keeper {
	t.Helper()
	cfg := KeeperConfig{Dir: t.TempDir(), Command: keeperCommand, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
	if change != nil {
		change(&cfg)
	}
	goroutines, files := runtime.NumGoroutine(), openFiles(t)
	k := NewKeeper(cfg)
	t.Cleanup(func() {
		last := NewKeeper(cfg)
		if err := k.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := last.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		if free, err := companion.LockFree(last.layout.lock()); !free || err != nil {
			t.Errorf("a keeper is still running: lock free %v, %v", free, err)
		}
		eventually(t, "goroutines and files are gone", func() bool {
			return runtime.NumGoroutine() <= goroutines && openFiles(t) <= files
		})
	})
	return k
}

func openFiles(t *testing.T) int {
	t.Helper()
	// The Go runtime opens its own descriptors for polling with the first pipe, so create one
	// before counting.
	if r, w, err := os.Pipe(); err != nil || r.Close() != nil || w.Close() != nil {
		t.Fatal("pipe", err)
	}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("open files cannot be counted here: %v", err)
	}
	return len(entries)
}

// eventually polls until ok returns true. Use it to wait for other processes that do not send a notification.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("timed out waiting until %s", what)
		}
	}
}

// shim acts as a container's shim. Like a real shim, it holds both ends of the FIFOs open, so that
// writes never fail.
type shim struct {
	Source
	out, err *os.File
}

// newShim creates the FIFOs for a machine's boot.
func newShim(t *testing.T, id bourse.MachineID, boot int) *shim {
	t.Helper()
	dir := t.TempDir()
	s := &shim{Source: Source{Machine: id, Boot: boot, Stdout: filepath.Join(dir, "out"), Stderr: filepath.Join(dir, "err")}}
	s.out, s.err = fifo(t, s.Stdout), fifo(t, s.Stderr)
	return s
}

func fifo(t *testing.T, path string) *os.File {
	t.Helper()
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}

// end ends a container: the shim closes its descriptors.
func (s *shim) end(t *testing.T) {
	t.Helper()
	if s.out.Close() != nil || s.err.Close() != nil {
		t.Error("the FIFOs were already closed")
	}
}

func (s *shim) say(t *testing.T, text string) {
	t.Helper()
	if _, err := s.out.WriteString(text); err != nil {
		t.Fatal(err)
	}
}

func mustKeep(t *testing.T, k *Keeper, src Source) {
	t.Helper()
	if err := k.Keep(t.Context(), src); err != nil {
		t.Fatalf("Keep: %v", err)
	}
}

func mustDone(t *testing.T, k *Keeper, src Source) {
	t.Helper()
	if err := k.Done(t.Context(), src); err != nil {
		t.Fatalf("Done: %v", err)
	}
}

// lines returns the lines in a machine's log by stream. Pieces of long lines are joined.
func lines(t *testing.T, k *Keeper, id bourse.MachineID) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	open := map[string]bool{}
	err := k.Logs(t.Context(), id, driver.LogQuery{}, func(l driver.LogLine) error {
		if all := out[l.Stream]; open[l.Stream] {
			all[len(all)-1] += l.Text
		} else {
			out[l.Stream] = append(all, l.Text)
		}
		open[l.Stream] = l.Partial
		return nil
	})
	if err != nil {
		t.Fatalf("Logs: %v", err)
	}
	return out
}

// awaitLine follows a machine's log until it contains a line.
func awaitLine(t *testing.T, k *Keeper, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	found := false
	err := k.Logs(ctx, someMachine, driver.LogQuery{Follow: true}, func(l driver.LogLine) error {
		if strings.Contains(l.Text, text) {
			found = true
			cancel()
		}
		return nil
	})
	if !found {
		t.Fatalf("the log ended without %q: %v", text, err)
	}
}

// process returns the id of the last process that answered.
func (k *Keeper) process() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pid
}

// kill kills the keeper's process.
func kill(t *testing.T, k *Keeper) {
	t.Helper()
	if err := syscall.Kill(k.process(), syscall.SIGKILL); err != nil {
		t.Fatalf("kill the keeper: %v", err)
	}
}

// foreignKeeper acts as a keeper from another release. It reports another version, and supports only the request to
// exit.
func foreignKeeper(dir string) error {
	tell := companion.Readiness()
	l, err := newLayout(dir)
	if err != nil {
		return err
	}
	if err := companion.Lock(l.lock()); err != nil {
		return err
	}
	listener, err := companion.Listen(l.run())
	tell(err)
	for err == nil {
		conn, acceptErr := listener.AcceptUnix()
		if acceptErr != nil {
			return acceptErr
		}
		req := new(request)
		if err := companion.ReadFrame(bufio.NewReader(conn), req); err != nil {
			return err
		}
		if req.Op == opEnd {
			os.Exit(0)
		}
		err = companion.WriteFrame(conn, &reply{Version: protocolVersion + 1, PID: os.Getpid()})
		_ = conn.Close()
	}
	return err
}
