package test

import (
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// enclave is a thread with its own namespaces, which apply to everything that the thread
// starts, opens and dials. When the test ends, they disappear together with the thread's
// processes and open files.
type enclave struct{ work chan func() }

// newEnclave creates an enclave with the namespaces in flags. It skips the test if that is
// not permitted.
func newEnclave(t *testing.T, flags int) *enclave {
	t.Helper()
	e := &enclave{work: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends with this goroutine
		ready <- unix.Unshare(flags)
		for f := range e.work {
			f()
		}
	}()
	t.Cleanup(func() { close(e.work) })
	if err := <-ready; errors.Is(err, unix.EPERM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("cannot create namespaces: unshare: %v (root is required)", err)
	} else if err != nil {
		t.Fatalf("unshare: %v", err)
	}
	return e
}

// do calls f on the thread and waits for it.
func (e *enclave) do(f func() error) error {
	done := make(chan error)
	e.work <- func() { done <- f() }
	return <-done
}

// launch starts a process in the namespaces.
func (e *enclave) launch(cmd *exec.Cmd) error { return e.do(cmd.Start) }

// mountSmall mounts a tmpfs at a directory. Only the enclave sees it. size is in bytes.
func (e *enclave) mountSmall(dir string, size int) error {
	return e.do(func() error {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("keep mounts private: %w", err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, fmt.Sprintf("size=%d", size)); err != nil {
			return fmt.Errorf("mount a small file system: %w", err)
		}
		return nil
	})
}
