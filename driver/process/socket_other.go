//go:build unix && !linux

package process

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
)

func listenSocket(dir string) (*net.UnixListener, error) {
	path := filepath.Join(dir, socketName)
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	return l, nil
}

func dialSocket(ctx context.Context, dir string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join(dir, socketName))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// checkPeer relies on the directory's mode, 0700.
func checkPeer(*net.UnixConn) error { return nil }

func pipe() (r, w int, err error) {
	var p [2]int
	// No pipe2 here: a fork between the two calls would pass the pipe on.
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
