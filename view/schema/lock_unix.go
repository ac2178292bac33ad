//go:build unix

package schema

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// Lock locks the file at path until unlock is called. It creates the file if it does not exist. It
// returns CodeAlreadyExists if another process holds the lock. path must not be the view's file,
// which SQLite locks itself and which may be replaced.
func Lock(path string) (unlock func() error, err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "%w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		return nil, errors.Join(bourse.Errorf(bourse.CodeAlreadyExists, "another process has it open"), f.Close())
	case err != nil:
		return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "lock: %w", err), f.Close())
	}
	return f.Close, nil
}
