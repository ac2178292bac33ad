package companion

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// viaDescriptor calls fn with a short path to a file in dir. It is needed if dir's own path is
// long, because a socket's path may have at most 107 bytes.
func viaDescriptor[T any](dir, file string, fn func(path string) (T, error)) (T, error) {
	d, err := os.Open(dir)
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return fn("/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + file)
}

// Listen creates the socket SocketName in dir, replacing a socket left by a dead process.
func Listen(dir string) (*net.UnixListener, error) {
	return viaDescriptor(dir, SocketName, func(path string) (*net.UnixListener, error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return nil, err
		}
		l.SetUnlinkOnClose(false) // the short path is no longer valid when the listener is closed
		return l, nil
	})
}

// Dial connects to the companion that listens in dir.
func Dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	return viaDescriptor(dir, SocketName, func(path string) (*net.UnixConn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		return c.(*net.UnixConn), nil
	})
}

// CheckPeer returns an error unless the client's user is this process's user or root.
func CheckPeer(c *net.UnixConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return err
	}
	if credErr != nil {
		return credErr
	}
	if cred.Uid != 0 && cred.Uid != uint32(os.Geteuid()) {
		return fmt.Errorf("user %d may not connect to a process of user %d", cred.Uid, os.Geteuid())
	}
	return nil
}
