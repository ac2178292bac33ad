package volume

import (
	"context"
	"errors"

	"github.com/bourse-dev/bourse"
)

const gib = 1 << 30

// Create creates an empty volume. It does nothing if the volume exists. If Create fails, it leaves
// nothing on the disk. Errors: CodeInvalid for an invalid id or order, CodeFailedPrecondition if
// the host cannot encrypt volumes, CodeInsufficient if the host's disk is full.
func (s *Store) Create(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder) error {
	if err := s.check(id, spec); err != nil {
		return err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	return s.create(string(id), func() error {
		return s.format(ctx, string(id), spec.SizeGB*gib, spec.Encrypted)
	})
}

func (s *Store) check(id bourse.VolumeID, spec bourse.VolumeOrder) error {
	if err := id.Validate(); err != nil {
		return err
	}
	if spec.SizeGB < 1 || spec.SizeGB > bourse.MaxVolumeGB {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: use 1 to %d", spec.SizeGB, bourse.MaxVolumeGB)
	}
	if spec.FSType != "" && spec.FSType != bourse.DefaultFSType {
		return bourse.Errorf(bourse.CodeInvalid, "invalid fstype %s: use ext4", bourse.Quoted(spec.FSType))
	}
	if spec.Encrypted {
		return s.mayEncrypt()
	}
	return nil
}

// create creates an object unless it exists. It calls fill to create the files in the object's
// directory.
func (s *Store) create(id string, fill func() error) error {
	if there, err := s.has(id, stageComplete); err != nil || there {
		return err
	}
	err := s.begin(id, stageNew)
	s.step("begun")
	if err == nil {
		err = fill()
	}
	if err == nil {
		s.step("filled")
		err = s.advance(id, stageNew, stageComplete)
	}
	s.step("complete")
	if err != nil {
		return errors.Join(err, s.clear(id, stageNew))
	}
	return nil
}

// format creates the image of a new volume, and a file system in the image.
func (s *Store) format(ctx context.Context, id string, bytes int64, crypted bool) error {
	path := s.path(id, stageNew, imageFile)
	f, err := makeImage(path, bytes)
	if err != nil {
		return failed(err, "create the image of %s", id)
	}
	s.step("image made")
	if crypted {
		err = s.formatCrypt(ctx, id, path)
	} else {
		err = run(ctx, nil, makeFSArgs(path, uuidOf(id), false))
	}
	s.step("file system made")
	return failed(errors.Join(err, f.Sync(), f.Close()), "create the file system of %s", id)
}

func (s *Store) formatCrypt(ctx context.Context, id, path string) error {
	key, err := s.key(bourse.VolumeID(id))
	if err != nil {
		return err
	}
	if err := run(ctx, key, luksFormatArgs(path, uuidOf(id))); err != nil {
		return err
	}
	dev, err := attachLoop(path, false)
	if err != nil {
		return err
	}
	name := mapperPrefix + id
	if err = run(ctx, key, luksOpenArgs(dev.Name(), name)); err == nil {
		err = run(ctx, nil, makeFSArgs(mapperPath(id), uuidOf(id), false))
		err = errors.Join(err, run(context.WithoutCancel(ctx), nil, luksCloseArgs(name)))
	}
	return errors.Join(err, dev.Close())
}
