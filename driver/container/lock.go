package container

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// lockTimeout limits the wait for an earlier daemon to exit and release the lock.
const lockTimeout = 2 * time.Second

// lock locks a driver's directory, because two drivers with the same directory would remove each
// other's objects. The kernel releases the lock when the file is closed or the process dies.
func lock(ctx context.Context, dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(lockTimeout)
	for pause := minRetryDelay; ; pause = min(2*pause, maxRetryDelay) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(deadline) {
			err = bourse.Errorf(bourse.CodeUnavailable, "another daemon uses %s: %w", dir, err)
			return nil, errors.Join(err, f.Close())
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, errors.Join(ctx.Err(), f.Close())
		}
	}
}
