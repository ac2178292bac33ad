//go:build unix && !linux

package process

import (
	"errors"
	"os"
	"syscall"
)

func pipe() (r, w int, err error) {
	var p [2]int
	// Without pipe2, a concurrent fork could inherit the pipe before it is marked close-on-exec.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := syscall.Pipe(p[:]); err != nil {
		return -1, -1, os.NewSyscallError("pipe", err)
	}
	syscall.CloseOnExec(p[0])
	syscall.CloseOnExec(p[1])
	if err := syscall.SetNonblock(p[0], true); err != nil {
		return -1, -1, errors.Join(err, syscall.Close(p[0]), syscall.Close(p[1]))
	}
	return p[0], p[1], nil
}

func adoptOrphans() error { return nil }
