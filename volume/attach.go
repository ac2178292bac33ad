package volume

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/wholefile"
)

// Attach prepares a volume for a virtual machine and returns the path of its block device. It does
// nothing if the volume is already attached. Unmount undoes it. Because the guest may write any
// bytes to the device, the host never mounts the volume or a copy of it again. Errors: those of
// Mount, and CodeUnavailable while the host still uses the volume.
func (s *Store) Attach(ctx context.Context, id bourse.VolumeID) (device string, err error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.requireComplete(string(id)); err != nil {
		return "", err
	}
	return s.attach(ctx, string(id))
}

// attach implements Attach. The lock of id must be held.
func (s *Store) attach(ctx context.Context, id string) (string, error) {
	path := s.path(id, stageComplete, imageFile)
	dev, err := lastingLoop(path)
	if err != nil {
		return "", failed(err, "attach %s", id)
	}
	if dev == nil {
		if err := s.giveUp(ctx, id); err != nil {
			return "", err
		}
		s.mounted(id)
		if dev, err = attachLoop(path, true); err != nil {
			return "", failed(err, "attach %s", id)
		}
	}
	defer func() { _ = dev.Close() }() // the device remains bound
	s.step("attached")
	crypted, err := s.isEncrypted(id, stageComplete, dev)
	if err != nil || !crypted {
		return dev.Name(), err
	}
	return s.openCrypt(ctx, id, dev.Name())
}

// giveUp permanently ends the host's own use of a volume. The lock of id must be held.
func (s *Store) giveUp(ctx context.Context, id string) error {
	if err := s.unmount(ctx, id); err != nil {
		return err
	}
	// Even after unmount, a process may still be using a detached mount. If a guest got the device now, the host's
	// kernel and the guest's would write to the same file system.
	if free, err := awaitUnbound(ctx, s.path(id, stageComplete, imageFile)); errors.Is(err, fs.ErrNotExist) {
		return damaged(id, "its image is missing")
	} else if err != nil {
		return failed(err, "attach %s", id)
	} else if !free {
		return bourse.Errorf(bourse.CodeUnavailable, "volume %s is still in use on the host", id)
	}
	if vm, err := s.isVM(id, stageComplete); err != nil || vm {
		return err
	}
	crypted, err := s.inspect(ctx, id, false) // safe, because no guest has written to the image yet
	if err != nil {
		return err
	}
	s.step("given up")
	return s.markVM(id, stageComplete, crypted)
}

// release removes the device that attach created, if there is one. The lock of id must be held.
func (s *Store) release(ctx context.Context, id string) error {
	if err := closeCrypt(ctx, id); err != nil {
		return err
	}
	if vm, err := s.isVM(id, stageComplete); err != nil || !vm {
		return err
	}
	err := detachLoop(s.path(id, stageComplete, imageFile))
	s.step("detached")
	return failed(err, "detach %s", id)
}

// The possible contents of a vmFile. The file records whether the image is encrypted. The image
// itself is not a reliable source for this, because a guest can write the header of an encrypted
// image to an unencrypted one.
const (
	vmPlain     = "plain"
	vmEncrypted = "encrypted"
)

// markVM records that a virtual machine may have written to an object's image.
func (s *Store) markVM(id string, at stage, crypted bool) error {
	text := vmPlain
	if crypted {
		text = vmEncrypted
	}
	return failed(wholefile.Write(s.path(id, at, vmFile), []byte(text), 0o600), "mark %s", id)
}

// keepVM marks a copy with markVM if a virtual machine may have written to the original image.
func (s *Store) keepVM(into string, at stage, c *content) error {
	if !c.VM {
		return nil
	}
	return s.markVM(into, at, c.Encrypted)
}

// readVM returns the content of an object's vmFile, or "" if there is no such file.
func (s *Store) readVM(id string, at stage) (string, error) {
	text, err := os.ReadFile(s.path(id, at, vmFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", failed(err, "read the files of %s", id)
	case string(text) != vmPlain && string(text) != vmEncrypted:
		return "", damaged(id, "its file "+vmFile+" is invalid")
	}
	return string(text), nil
}

// isVM reports whether a virtual machine may have written to an object's image.
func (s *Store) isVM(id string, at stage) (bool, error) {
	text, err := s.readVM(id, at)
	return text != "", err
}

// isEncrypted reports whether an object's image is encrypted.
func (s *Store) isEncrypted(id string, at stage, image io.ReaderAt) (bool, error) {
	if text, err := s.readVM(id, at); err != nil || text != "" {
		return text == vmEncrypted, err
	}
	crypted, err := encrypted(image)
	return crypted, failed(err, "read %s", id)
}

// isAttached reports whether a virtual machine may be using a volume.
func (s *Store) isAttached(id string) (bool, error) {
	if vm, err := s.isVM(id, stageComplete); err != nil || !vm {
		return false, err
	}
	dev, err := lastingLoop(s.path(id, stageComplete, imageFile))
	if err != nil || dev == nil {
		return false, failed(err, "check whether %s is attached", id)
	}
	return true, dev.Close()
}

// isUsed reports whether a volume is mounted, or attached to a virtual machine.
func (s *Store) isUsed(id string) (bool, error) {
	device, err := mountedOn(s.path(id, stageComplete, mountDir))
	if err != nil || device != "" {
		return device != "", failed(err, "check whether %s is mounted", id)
	}
	return s.isAttached(id)
}

// Copyable returns CodeFailedPrecondition if a virtual machine may be writing to the volume and an earlier copy has
// found that the host's file system cannot share blocks; see capture.
func (s *Store) Copyable(id bourse.VolumeID) error {
	if !s.noClone.Load() {
		return nil
	}
	attached, err := s.isAttached(string(id))
	if err == nil && attached {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "a virtual machine is using volume %s, and the host's file system cannot clone files: stop the machine first", id)
	}
	return err
}
