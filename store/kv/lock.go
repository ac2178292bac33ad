package kv

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// lockPoll is how often a lock that another daemon has is asked for.
const lockPoll = 20 * time.Millisecond

// lockFile opens the store's file and takes the lock that bbolt takes: with it
// held, the file is read as a whole before bbolt sees it, which then has the lock
// already. CodeAlreadyExists: another process has it.
func lockFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "lock store %s: %w", path, err), f.Close())
		case time.Now().After(end):
			return nil, errors.Join(bourse.Errorf(bourse.CodeAlreadyExists, "store %s is in use by another daemon", path), f.Close())
		}
	}
}
