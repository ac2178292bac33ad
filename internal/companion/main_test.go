package companion

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// TestMain makes the test binary run as a companion if its first argument requests it.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "companion" {
		if err := runCompanion(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runCompanion is the companion's main function. It greets every client, and returns once a client sends a byte.
func runCompanion(dir string) error {
	CloseInherited()
	tell := Readiness()
	l, err := func() (*net.UnixListener, error) {
		if err := Lock(filepath.Join(dir, "lock")); err != nil {
			return nil, err
		}
		return Listen(dir)
	}()
	tell(err)
	if err != nil {
		return err
	}
	for {
		conn, err := l.AcceptUnix()
		if err != nil {
			return err
		}
		if err := CheckPeer(conn); err != nil {
			return err
		}
		var b [1]byte
		_, _ = conn.Write([]byte("hello"))
		n, _ := conn.Read(b[:])
		_ = conn.Close()
		if n > 0 {
			return nil
		}
	}
}

// TestCompanionLifecycle starts a companion and connects to it. It checks that a second one cannot start and
// that the companion ends on request. The directory's path is longer than the maximum length of a
// socket's path.
func TestCompanionLifecycle(t *testing.T) {
	dir := filepath.Join(t.TempDir(), strings.Repeat("long/", 40))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	lock, log := filepath.Join(dir, "lock"), filepath.Join(dir, "log")
	if free, err := LockFree(lock); !free || err != nil {
		t.Fatalf("before the start: got lock free %t, %v; want true", free, err)
	}
	if _, err := Dial(t.Context(), dir); err == nil {
		t.Fatal("a companion listens before one was started")
	}
	command := []string{"/proc/self/exe", "companion", dir}
	p, err := Spawn(t.Context(), command, log)
	if err != nil {
		t.Fatal(err)
	}
	second, err := Spawn(t.Context(), command, log)
	if err == nil || !strings.Contains(err.Error(), ErrHeld.Error()) {
		t.Errorf("a second companion: %v, want %v", err, ErrHeld)
	}
	if _, err := second.Wait(); err != nil {
		t.Error(err)
	}
	if free, err := LockFree(lock); free || err != nil {
		t.Errorf("while the companion runs: got lock free %t, %v; want false", free, err)
	}
	conn, err := Dial(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var b [16]byte
	if n, err := conn.Read(b[:]); string(b[:n]) != "hello" {
		t.Errorf("got %q, %v from the companion, want hello", b[:n], err)
	}
	if _, err := conn.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := AwaitEnd(t.Context(), lock); err != nil {
		t.Fatal(err)
	}
	if state, err := p.Wait(); err != nil || !state.Success() {
		t.Errorf("the companion exited with %v, %v", state, err)
	}
}

// TestSpawnFails checks the errors of Spawn for commands that do not exist and for a companion that exits immediately.
func TestSpawnFails(t *testing.T) {
	log := filepath.Join(t.TempDir(), "log")
	for name, command := range map[string][]string{"missing": {"no-such-program-anywhere"}, "no such path": {"/no/such/program"}, "none": nil} {
		if p, err := Spawn(t.Context(), command, log); bourse.CodeOf(err) != bourse.CodeInvalid || p != nil {
			t.Errorf("%s: got %v, want invalid", name, err)
		}
	}
	p, err := Spawn(t.Context(), []string{"sh", "-c", "exit 1"}, log)
	if err == nil || p == nil {
		t.Fatalf("companion that exits immediately: %v, %v, want an error and the process", p, err)
	}
	if _, err := p.Wait(); err != nil {
		t.Error(err)
	}
}

// TestLockOfKilledProcessIsFree checks that the lock of a killed process becomes free.
func TestLockOfKilledProcessIsFree(t *testing.T) {
	dir := t.TempDir()
	p, err := Spawn(t.Context(), []string{"/proc/self/exe", "companion", dir}, filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	if err := Lock(filepath.Join(dir, "lock")); !errors.Is(err, ErrHeld) {
		t.Errorf("got %v, want %v", err, ErrHeld)
	}
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := AwaitEnd(t.Context(), filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	t.Logf("the lock was free only after %s", time.Since(begun))
	if _, err := p.Wait(); err != nil {
		if _, ok := errors.AsType[*exec.ExitError](err); !ok {
			t.Error(err)
		}
	}
}
