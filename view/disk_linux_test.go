package view

import (
	"context"
	"os/signal"
	"syscall"
	"testing"
)

// mountSmall mounts a file system of 16 MiB and returns its directory.
func mountSmall(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("a small file system needs root: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// childFills runs fillAndRecover with a limit on the size of this process's files.
func childFills(ctx context.Context, v *View) error {
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old); err != nil {
		return err
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 6 << 20, Max: old.Max}); err != nil {
		return err
	}
	return fillAndRecover(ctx, v, func() error { return syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old) })
}
