//go:build unix && !linux

package companion

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Listen creates the socket SocketName in dir, replacing a socket left by a dead process.
func Listen(dir string) (*net.UnixListener, error) {
	path := filepath.Join(dir, SocketName)
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

// Dial connects to the companion that listens in dir.
func Dial(ctx context.Context, dir string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", filepath.Join(dir, SocketName))
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// CheckPeer always returns nil. The directory's mode, 0700, already limits access.
func CheckPeer(*net.UnixConn) error { return nil }
