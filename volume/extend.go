package volume

import (
	"context"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// Extend enlarges a volume to sizeGB, even while machines are using it; see ExtendsLive. It returns
// CodeInvalid if sizeGB is below the current size, because volumes cannot shrink. Calling it again
// with the same size completes an interrupted call.
func (s *Store) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) error {
	if err := s.check(id, bourse.VolumeOrder{SizeGB: sizeGB}); err != nil {
		return err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	if err := s.requireComplete(string(id)); err != nil {
		return err
	}
	if err := s.growImage(string(id), sizeGB*gib); err != nil {
		return err
	}
	s.step("image grown")
	return s.grow(ctx, string(id))
}

// growImage extends the image and syncs it, because the file system may grow only after the new
// length is durable.
func (s *Store) growImage(id string, bytes int64) error {
	f, err := os.OpenFile(s.path(id, stageComplete, imageFile), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return damaged(id, "its image is missing")
	}
	if err != nil {
		return failed(err, "extend %s", id)
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case bytes < st.Size():
		err = bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: %s already has %d GB, and volumes cannot shrink", bytes/gib, id, st.Size()/gib)
	case bytes > st.Size():
		err = errors.Join(f.Truncate(bytes), f.Sync())
	}
	return failed(errors.Join(err, f.Close()), "extend %s", id)
}

// grow makes the file system fill its image. If the file system is not mounted, grow mounts it
// temporarily. A virtual machine's file system grows when the next guest mounts it. The lock of id
// must be held.
func (s *Store) grow(ctx context.Context, id string) error {
	if vm, err := s.isVM(id, stageComplete); err != nil || vm {
		return err
	}
	target := s.path(id, stageComplete, mountDir)
	device, err := mountedOn(target)
	if err != nil {
		return failed(err, "check whether %s is mounted", id)
	}
	if device == "" {
		if _, err := s.mount(ctx, id, false); err != nil {
			return err
		}
		s.step("mounted to grow")
		return s.unmount(ctx, id)
	}
	if err := growLoop(s.path(id, stageComplete, imageFile)); err != nil {
		return failed(err, "extend the device of %s", id)
	}
	s.step("device grown")
	if !s.growsMounted {
		s.log.Info("volume will grow at its next mount because CAP_SYS_RESOURCE is missing", "volume", id)
		return nil
	}
	if _, err := os.Stat(mapperPath(id)); err == nil {
		key, err := s.keyOf(id, stageComplete)
		if err == nil {
			err = run(ctx, key, luksResizeArgs(mapperPrefix+id))
		}
		if err != nil {
			return failed(err, "extend the encrypted %s", id)
		}
	}
	err = growFS(target, device)
	s.step("file system grown")
	return failed(err, "extend the file system of %s", id)
}
