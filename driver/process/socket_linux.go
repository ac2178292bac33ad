package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// viaDescriptor calls fn with a name for a file in dir that is short whatever
// dir is: a socket's path has room for 108 bytes only.
func viaDescriptor[T any](dir, file string, fn func(path string) (T, error)) (T, error) {
	d, err := os.Open(dir)
	if err != nil {
		var none T
		return none, err
	}
	defer d.Close()
	return fn("/proc/self/fd/" + strconv.Itoa(int(d.Fd())) + "/" + file)
}

func listenSocket(dir string) (*net.UnixListener, error) {
	return viaDescriptor(dir, socketName, func(path string) (*net.UnixListener, error) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			return nil, err
		}
		l.SetUnlinkOnClose(false) // the path means nothing any more by then
		return l, nil
	})
}

func dialSocket(ctx context.Context, dir string) (*net.UnixConn, error) {
	return viaDescriptor(dir, socketName, func(path string) (*net.UnixConn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		return c.(*net.UnixConn), nil
	})
}

// checkPeer refuses everyone but this user and root.
func checkPeer(c *net.UnixConn) error {
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
		return fmt.Errorf("user %d may not speak to the supervisor of user %d", cred.Uid, os.Geteuid())
	}
	return nil
}

// pipe makes a pipe whose reading end can be waited for. Both ends are closed
// on exec.
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

// adoptOrphans makes processes whose parents are gone our children, so that
// they can be found and reaped.
func adoptOrphans() error { return unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) }
