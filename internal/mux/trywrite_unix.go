//go:build unix

package mux

import (
	"errors"
	"net"
	"syscall"
)

// tryWrite returns a function that writes as much of its argument to a connection as
// that takes at once, and returns how much that was; less than all is not an error.
// A connection that is no socket takes nothing at once. One call at a time; a
// call needs no memory.
func tryWrite(conn net.Conn) func([]byte) (int, error) {
	nothing := func([]byte) (int, error) { return 0, nil }
	c, ok := conn.(syscall.Conn)
	if !ok {
		return nothing
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return nothing
	}
	var (
		batch []byte // one is written at a time
		n     int
		fault error
	)
	write := func(fd uintptr) bool {
		for {
			n, fault = syscall.Write(int(fd), batch)
			if !errors.Is(fault, syscall.EINTR) {
				return true
			}
		}
	}
	return func(p []byte) (int, error) {
		batch, n, fault = p, 0, nil
		err := raw.Write(write)
		batch = nil
		if err == nil && fault != nil && !errors.Is(fault, syscall.EAGAIN) {
			err = fault
		}
		return max(n, 0), err
	}
}
