package volume

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// forkLife is how long the copy of a mounted volume stays after it was read.
const forkLife = 15 * time.Minute

// fork copies a mounted volume for readers of its content, under a number
// of its own: several may read different moments of it at once. What a crash
// leaves of it is removed by Recover, in any state.
func (s *Store) fork(ctx context.Context, id string) (Manifest, error) {
	s.mu.Lock()
	s.lastFork++
	n := s.lastFork
	s.mu.Unlock()
	at := forkStage(n)
	if err := s.begin(id, at); err != nil {
		return Manifest{}, err
	}
	s.renewFork(id, at)
	err := s.keep(ctx, id, id, at, forkID(id, n))
	if err != nil {
		return Manifest{}, errors.Join(err, s.removeFork(filepath.Base(s.path(id, at))))
	}
	s.renewFork(id, at)
	m, err := s.readManifest(id, at)
	return s.withKey(m, id, at, err)
}

// Release removes what Manifest made for this manifest's ID, if anything: call
// it when all chunks are fetched.
func (s *Store) Release(_ context.Context, id string) error {
	of, at, ok := parseForkID(id)
	if !ok {
		return nil
	}
	return s.removeFork(filepath.Base(s.path(of, at)))
}

// renewFork restarts the time after which a copy is removed.
func (s *Store) renewFork(id string, at stage) {
	name := filepath.Base(s.path(id, at))
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.forks[name]; t != nil {
		t.Reset(forkLife)
		return
	}
	if _, err := os.Stat(filepath.Join(s.dir, name)); err != nil {
		return // an old one, or an invention
	}
	s.forks[name] = time.AfterFunc(forkLife, func() {
		if err := s.removeFork(name); err != nil {
			s.log.Warn("copy of volume is not removed", "copy", name, "err", err)
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

// forksOf returns the directories of a volume's copies, the latest last.
func (s *Store) forksOf(id string) ([]string, error) {
	files, err := filepath.Glob(s.path(id, forked+"*")) // an id has no magic characters
	if err != nil {
		return nil, err
	}
	number := func(name string) int {
		n, _ := strconv.Atoi(name[strings.LastIndex(name, string(forked))+len(forked):]) // others sort first
		return n
	}
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	slices.SortFunc(files, func(a, b string) int { return cmp.Compare(number(a), number(b)) })
	return files, nil
}

// latestFork returns the stage of the latest copy of a mounted volume; complete
// means the volume itself.
func (s *Store) latestFork(id string) (stage, error) {
	device, err := mountedOn(s.path(id, complete, mountDir))
	if err != nil || device == "" {
		return complete, failed(err, "look whether %s is mounted", id)
	}
	names, err := s.forksOf(id)
	if err != nil || len(names) == 0 {
		return complete, err
	}
	return stage(strings.TrimPrefix(names[len(names)-1], id)), nil
}
