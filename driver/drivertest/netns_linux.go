package drivertest

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Netns creates a network namespace and returns its path. The namespace's only interface is a
// loopback interface that is down. The namespace is removed when the test ends. If the test does
// not run as root, Netns skips the test.
func Netns(t *testing.T) string {
	t.Helper()
	needRoot(t)
	path := filepath.Join(t.TempDir(), "netns")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := mountNewNetns(path); err != nil {
		t.Skipf("network namespaces cannot be created here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", path, err)
		}
	})
	return path
}

// mountNewNetns creates a network namespace and mounts it at a path. Creating the namespace moves
// the calling thread into it, so mountNewNetns uses a thread that exits with its goroutine. It
// avoids the process's first thread, which would never exit.
func mountNewNetns(path string) error {
	made := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() {
			defer runtime.UnlockOSThread()
			made <- mountNewNetns(path) // runs on another thread, because this goroutine has locked the first one
			return
		}
		err := unix.Unshare(unix.CLONE_NEWNET)
		if err == nil {
			err = unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "")
		}
		made <- err
	}()
	return <-made
}

// hostNetworks returns the network interfaces of this process.
func hostNetworks(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/net/dev")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(text)) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			out = append(out, strings.TrimSpace(name))
		}
	}
	return out
}

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("tasks with their own network or mounts require root")
	}
}
