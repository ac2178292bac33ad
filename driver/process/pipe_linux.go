package process

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipe creates a pipe with a non-blocking read end. Both ends are closed on exec.
func pipe() (r, w int, err error) {
	var p [2]int
	if err := syscall.Pipe2(p[:], syscall.O_CLOEXEC); err != nil {
		return -1, -1, os.NewSyscallError("pipe2", err)
	}
	if err := syscall.SetNonblock(p[0], true); err != nil {
		return -1, -1, errors.Join(err, syscall.Close(p[0]), syscall.Close(p[1]))
	}
	return p[0], p[1], nil
}

// adoptOrphans makes the kernel reparent orphaned descendants to this process, so that it can find
// and reap them.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
