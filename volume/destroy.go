package volume

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
)

// Destroy removes a volume, complete or not, but not its snapshots. It does nothing if the volume
// does not exist.
func (s *Store) Destroy(ctx context.Context, id bourse.VolumeID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	return s.remove(ctx, string(id))
}

// RemoveSnapshot removes a snapshot, complete or not. It does nothing if the snapshot does not exist.
func (s *Store) RemoveSnapshot(ctx context.Context, snap bourse.SnapshotID) error {
	if err := snap.Validate(); err != nil {
		return err
	}
	return s.remove(ctx, string(snap))
}

func (s *Store) remove(ctx context.Context, id string) error {
	unlock, err := s.locks.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.unmount(ctx, id); err != nil {
		return err
	}
	if err := s.clear(id, stageGone); err != nil { // an object in this stage may have been left by a crash
		return err
	}
	there, err := s.has(id, stageComplete)
	if err == nil && there {
		err = s.advance(id, stageComplete, stageGone)
	}
	s.step("gone")
	for _, at := range []stage{stageGone, stageNew, stageFilling, stageReady} {
		err = errors.Join(err, s.clear(id, at))
		s.step("cleared")
	}
	if forks, listing := s.forksOf(id); listing == nil {
		for _, f := range forks {
			err = errors.Join(err, s.removeFork(f))
		}
	}
	return err
}
