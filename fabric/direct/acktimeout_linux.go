package direct

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// setAckTimeout makes the kernel close a connection if the other host does not acknowledge data in time.
func setAckTimeout(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(ackTimeout.Milliseconds()))
	})
	return errors.Join(err, set)
}
