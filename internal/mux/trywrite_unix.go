//go:build unix

package mux

import (
	"errors"
	"net"
	"syscall"
)

// tryWrite returns a function that writes as many bytes to a connection as possible without
// blocking, and returns their number. Writing fewer bytes than requested is not an error. If the
// connection is not a socket, the function does not write anything. The function is not safe for
// concurrent use and does not allocate.
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
		batch []byte
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
