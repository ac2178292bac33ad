package companion

import (
	"errors"
	"fmt"
	"syscall"
)

// ErrHeld is returned by Lock if another process holds the lock.
var ErrHeld = errors.New("another process holds the directory's lock")

// Lock locks a file until this process exits. It returns ErrHeld if another process holds the lock.
func Lock(path string) error {
	fd, err := syscall.Open(path, syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return errors.Join(ErrHeld, err, syscall.Close(fd))
	}
	return nil
}

// LockFree reports whether no process holds the lock on the file path. It returns true if the
// file does not exist.
func LockFree(path string) (bool, error) {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return errors.Is(err, syscall.ENOENT), nil
	}
	defer syscall.Close(fd)
	return syscall.Flock(fd, syscall.LOCK_EX|syscall.LOCK_NB) == nil, nil
}
