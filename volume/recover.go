package volume

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// Recover cleans up the directory after a crash. It must be called before any other operation. It thaws frozen file
// systems, and removes objects that were being created or removed. For each object that is complete or partly filled,
// it calls keep with the object's id: a volume ID, a snapshot ID, or the ID of a machine with scratch space. If keep
// returns false, Recover removes the object together with its mounts, loop devices and files. Retained volumes remain
// mounted. Recover does not touch files with other names.
func (s *Store) Recover(ctx context.Context, keep func(id string) bool) error {
	mounts, err := mountsBelow(s.dir)
	if err != nil {
		return failed(err, "list mounts")
	}
	for _, m := range mounts {
		// Thaw the file system, because the process that froze it has exited. thaw fails if it
		// was not frozen.
		_ = thaw(m)
	}
	files, err := os.ReadDir(s.dir)
	if err != nil {
		return failed(err, "list volumes")
	}
	var errs []error
	for _, f := range files {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		id, at, ok := entry(f.Name())
		if !ok {
			continue
		}
		errs = append(errs, s.recover(ctx, id, at, stage(strings.TrimPrefix(f.Name(), id)), keep(id)))
	}
	errs = append(errs, s.dropMounts(keep), clearLoops(func(file string) bool {
		id, ok := s.owner(file)
		return ok && !keep(id)
	}))
	return errors.Join(errs...)
}

// recover cleans up the directory of one object. kind is the object's stage as one of the stage constants, such as
// stageForked. at is the complete suffix of the directory's name; for a fork, it also contains the copy's number.
func (s *Store) recover(ctx context.Context, id string, kind, at stage, keep bool) error {
	switch kind {
	case stageNew, stageGone:
		return s.clear(id, at)
	case stageForked:
		if keep {
			s.expireFork(id+string(at), forkLife) // the copy's reader may reconnect
			return nil
		}
		return s.clear(id, at)
	case stageFilling, stageReady:
		if keep {
			return nil
		}
		return s.clear(id, at)
	default:
		if keep {
			return failed(s.undo(ctx, id), "repair %s", id)
		}
		s.log.Info("removing object without a record", "id", id)
		return s.remove(ctx, id)
	}
}

// dropMounts detaches every mount below the store's directory, except the mounts of objects that are kept.
func (s *Store) dropMounts(keep func(id string) bool) error {
	mounts, err := mountsBelow(s.dir)
	for _, m := range mounts {
		if id, ok := s.owner(m); !ok || !keep(id) {
			err = errors.Join(err, detach(m))
		}
	}
	return failed(err, "detach mounts")
}

// owner returns the id of the object to which a path belongs.
func (s *Store) owner(path string) (id string, ok bool) {
	rest, err := filepath.Rel(s.dir, path)
	if err != nil {
		return "", false
	}
	first, _, _ := strings.Cut(rest, string(filepath.Separator))
	id, _, ok = entry(first)
	return id, ok
}
