package volume

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	// forkLife is how long the copy of a volume in use remains after its reader has disconnected.
	forkLife = 15 * time.Minute
	// forkRetention is how long the copy remains after the whole stream has been sent. The reader
	// may need the copy again, because the end of the stream may have been lost.
	forkRetention = 30 * time.Second
)

// fork copies a volume in use, so that everything that a reader receives is from the same moment.
// The copy remains until the caller calls expireFork, and survives a restart of the daemon.
func (s *Store) fork(ctx context.Context, id string) (stage, error) {
	unlock, err := s.locks.lock(ctx, id+string(stageForked))
	if err != nil {
		return "", err
	}
	defer unlock()
	at := stageForked + stage(strconv.Itoa(rand.IntN(1e9)))
	if err := s.begin(id, stageNew); err != nil {
		return "", err
	}
	_, err = s.captureInto(ctx, id, id, stageNew)
	if err == nil {
		err = s.advance(id, stageNew, at)
	}
	if err != nil {
		return "", errors.Join(err, s.clear(id, stageNew))
	}
	return at, nil
}

// holdFork prevents the removal of a copy. It returns false if the copy does not exist.
func (s *Store) holdFork(id string, at stage) bool {
	name := id + string(at)
	if _, kind, ok := entry(name); !ok || kind != stageForked {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.forks[name]; t != nil {
		t.Stop()
		delete(s.forks, name)
	}
	_, err := os.Stat(filepath.Join(s.dir, name))
	return err == nil
}

// expireFork removes a copy once the duration life has passed, unless holdFork is called before
// then.
func (s *Store) expireFork(name string, life time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.forks[name]; t != nil {
		t.Stop()
	}
	s.forks[name] = time.AfterFunc(life, func() {
		if err := s.removeFork(name); err != nil {
			s.log.Warn("remove volume copy failed", "copy", name, "err", err)
		}
	})
}

func (s *Store) removeFork(name string) error {
	s.mu.Lock()
	if t := s.forks[name]; t != nil {
		t.Stop()
		delete(s.forks, name)
	}
	s.mu.Unlock()
	id, at, ok := strings.Cut(name, ".")
	if !ok {
		return nil
	}
	return s.clear(id, stage("."+at))
}

// forksOf returns the directories of a volume's copies.
func (s *Store) forksOf(id string) ([]string, error) {
	files, err := filepath.Glob(s.path(id, stageForked+"*")) // ids do not contain pattern characters
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	return files, err
}
