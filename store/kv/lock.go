package kv

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// While another process holds the lock, lockDir retries every lockPoll, for at most lockTimeout.
const (
	lockPoll    = 20 * time.Millisecond
	lockTimeout = time.Second
)

// lockDir locks a store's directory. It returns CodeAlreadyExists if another process holds the lock.
func lockDir(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "open store: %w", err)
	}
	for end := time.Now().Add(lockTimeout); ; time.Sleep(lockPoll) {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return f, nil
		case !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR):
			return nil, errors.Join(bourse.Errorf(bourse.CodeUnavailable, "lock store %s: %w", dir, err), f.Close())
		case time.Now().After(end):
			return nil, errors.Join(bourse.Errorf(bourse.CodeAlreadyExists, "store %s is in use by another daemon", dir), f.Close())
		}
	}
}
