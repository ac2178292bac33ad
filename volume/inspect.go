package volume

import (
	"context"
	"errors"
	"os"
	"time"
)

// undoFile is the file in which resize2fs saves the data that it overwrites.
const undoFile = "undo"

// The number and interval of the checks by which awaitUnbound finds out that a loop device has been
// unbound. Under load, the kernel was seen to take more than half a second to unbind a device.
const (
	unbindTries = 300
	unbindPause = 10 * time.Millisecond
)

// inspect prepares an image for mounting. It repairs damage that the kernel found when the image
// was last mounted. If the file system is smaller than its image, and this host cannot grow mounted
// file systems, inspect grows it. crypted reports whether the image is encrypted.
func (s *Store) inspect(ctx context.Context, id string, scratch bool) (crypted bool, err error) {
	if err := s.undo(ctx, id); err != nil {
		return false, failed(err, "repair %s", id)
	}
	path := s.path(id, stageComplete, imageFile)
	image, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, damaged(id, "its image is missing")
	}
	if err != nil {
		return false, failed(err, "open %s", id)
	}
	defer func() { _ = image.Close() }() // Close cannot lose data, because the file is only read
	if crypted, err = encrypted(image); err != nil || crypted {
		return crypted, failed(err, "read %s", id)
	}
	sb, err := readSuperblock(image)
	if err != nil {
		return false, damaged(id, err.Error())
	}
	st, err := image.Stat()
	if err != nil {
		return false, failed(err, "read %s", id)
	}
	if st.Size() < sb.Blocks*sb.Block {
		return false, damaged(id, "its image is shorter than its file system")
	}
	if scratch {
		return false, nil
	}
	if sb.Errors {
		s.log.Warn("volume has errors, repairing it", "volume", id)
		if err := repair(ctx, id, path, true); err != nil {
			return false, failed(err, "repair %s", id)
		}
	}
	if st.Size() > sb.Blocks*sb.Block && !s.growsMounted {
		return false, failed(s.resizeImage(ctx, id, path), "extend the file system of %s", id)
	}
	return false, nil
}

// resizeImage makes the file system of an unused image fill the image. Until it has finished, it
// keeps a copy of the data that it overwrites, so that undo can restore the file system if
// resizeImage is killed.
func (s *Store) resizeImage(ctx context.Context, id, path string) error {
	if free, err := awaitUnbound(ctx, path); err != nil {
		return err
	} else if !free { // the mount was detached, but is still in use
		s.log.Warn("volume in use, will grow at its next mount", "volume", id)
		return nil
	}
	if err := repair(ctx, id, path, true); err != nil {
		return err
	}
	s.step("repaired")
	kept := s.path(id, stageComplete, undoFile)
	if err := run(ctx, nil, []string{"resize2fs", "-z", kept, path}); err != nil {
		return errors.Join(err, s.undo(context.WithoutCancel(ctx), id))
	}
	s.step("resized")
	return os.Remove(kept)
}

// awaitUnbound waits until no loop device is bound to the image. The kernel unbinds the device
// shortly after the last process that uses the mount has exited. If that process belongs to a
// machine, this can take arbitrarily long, so awaitUnbound gives up after several seconds and
// returns false.
func awaitUnbound(ctx context.Context, path string) (bool, error) {
	for range unbindTries {
		dev, err := boundLoop(path)
		if err != nil || dev == nil {
			return err == nil, err
		}
		if err := errors.Join(dev.Close(), sleep(ctx, unbindPause)); err != nil {
			return false, err
		}
	}
	return false, nil
}

// undo reverts an interrupted resizeImage. If undo itself is interrupted, it may be repeated.
func (s *Store) undo(ctx context.Context, id string) error {
	kept := s.path(id, stageComplete, undoFile)
	switch st, err := os.Stat(kept); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Size() > 0:
		s.log.Warn("volume extension was interrupted, reverting it", "volume", id)
		// Exit code 1 means that the undo file is still empty, so nothing has been overwritten.
		if err := run(ctx, nil, []string{"e2undo", "-f", kept, s.path(id, stageComplete, imageFile)}, 1); err != nil {
			return err
		}
	}
	s.step("undone")
	return os.Remove(kept)
}
