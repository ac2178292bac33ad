package volume

import (
	"context"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// minScratchMiB is the minimum size of scratch space. It is slightly more than the file system
// itself needs.
const minScratchMiB = 4

// Scratch returns a mounted directory of the given size for a machine's temporary files. The file
// system has no journal. If the file system was damaged by a host crash or has another size,
// Scratch replaces it with an empty one.
func (s *Store) Scratch(ctx context.Context, machine bourse.MachineID, sizeMiB int64) (string, error) {
	if err := machine.Validate(); err != nil {
		return "", err
	}
	if sizeMiB < minScratchMiB || sizeMiB > bourse.MaxVolumeGB<<10 {
		return "", bourse.Errorf(bourse.CodeInvalid, "invalid size of scratch space: %d MiB, use %d to %d", sizeMiB, minScratchMiB, bourse.MaxVolumeGB<<10)
	}
	id := string(machine)
	if is, err := os.Stat(s.path(id, stageComplete, imageFile)); err == nil && is.Size() != sizeMiB<<20 {
		if err := s.remove(ctx, id); err != nil {
			return "", err
		}
	}
	unlock, err := s.locks.lock(ctx, id)
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.discardDirty(id); err != nil {
		return "", err
	}
	err = s.create(id, func() error {
		path := s.path(id, stageNew, imageFile)
		f, err := makeImage(path, sizeMiB<<20)
		if err != nil {
			return failed(err, "create scratch space of %s", id)
		}
		s.step("image made")
		err = run(ctx, nil, makeFSArgs(path, uuidOf(id), true))
		return failed(errors.Join(err, f.Close()), "create scratch space of %s", id)
	})
	if err != nil {
		return "", err
	}
	return s.mount(ctx, id, true)
}

// discardDirty removes scratch space that cannot be mounted without repairs.
func (s *Store) discardDirty(id string) error {
	target := s.path(id, stageComplete, mountDir)
	if device, err := mountedOn(target); err != nil || device != "" {
		return failed(err, "check whether %s is mounted", id)
	}
	if there, err := s.has(id, stageComplete); err != nil || !there {
		return err
	}
	image, err := os.Open(s.path(id, stageComplete, imageFile))
	if err == nil {
		var sb superblock
		sb, err = readSuperblock(image)
		_ = image.Close() // Close cannot lose data, because the file is only read
		if err == nil && sb.Clean {
			return nil
		}
	}
	s.log.Warn("scratch space is damaged, recreating it", "machine", id, "err", err)
	return s.clear(id, stageComplete)
}

// RemoveScratch removes a machine's scratch space. It does nothing if the machine has none.
func (s *Store) RemoveScratch(ctx context.Context, machine bourse.MachineID) error {
	if err := machine.Validate(); err != nil {
		return err
	}
	return s.remove(ctx, string(machine))
}
