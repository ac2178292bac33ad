package volume

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// Unmount tries to unmount a busy file system unmountTries times, with pauses of unmountPause, before
// it detaches the mount.
const (
	unmountTries = 5
	unmountPause = 20 * time.Millisecond
)

// Mount mounts a volume unless it is already mounted, and returns its directory. Errors:
// CodeNotFound for an unknown volume, CodeFailedPrecondition if its image is missing or damaged,
// or if a virtual machine has used it; see Attach.
func (s *Store) Mount(ctx context.Context, id bourse.VolumeID) (string, error) {
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
	return s.mount(ctx, string(id), false)
}

// Unmount undoes Mount and Attach. If the file system is still in use, Unmount
// detaches the mount, and the kernel unmounts the file system when its last user exits.
func (s *Store) Unmount(ctx context.Context, id bourse.VolumeID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return err
	}
	defer unlock()
	return s.unmount(ctx, string(id))
}

// mount mounts the image of id in the directory of id. The lock of id must be held.
func (s *Store) mount(ctx context.Context, id string, scratch bool) (string, error) {
	if vm, err := s.isVM(id, stageComplete); err != nil {
		return "", err
	} else if vm {
		return "", bourse.Errorf(bourse.CodeFailedPrecondition, "a virtual machine has used volume %s and could have prepared its file system to attack the host: "+
			"only virtual machines can use it", id)
	}
	target := s.path(id, stageComplete, mountDir)
	device, err := mountedOn(target)
	if err != nil {
		return "", failed(err, "check whether %s is mounted", id)
	}
	if device != "" {
		return target, nil
	}
	crypted, err := s.inspect(ctx, id, scratch)
	if err != nil {
		return "", err
	}
	if err := os.Mkdir(target, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return "", failed(err, "mount %s", id)
	}
	s.mounted(id)
	dev, err := attachLoop(s.path(id, stageComplete, imageFile), false)
	if err != nil {
		return "", failed(err, "attach %s", id)
	}
	defer func() { _ = dev.Close() }() // after a successful mount, the mount keeps the device bound
	s.step("attached")
	device = dev.Name()
	if crypted {
		if device, err = s.openCrypt(ctx, id, device); err != nil {
			return "", err
		}
	}
	if err := mountExt4(device, target, scratch); err != nil {
		return "", errors.Join(mountFailed(id, err), closeCrypt(context.WithoutCancel(ctx), id))
	}
	s.step("mounted")
	if s.growsMounted && !scratch {
		if err := growFS(target, device); err != nil {
			s.log.Warn("grow file system failed", "volume", id, "err", err)
		}
	}
	return target, nil
}

func mountFailed(id string, err error) error {
	if isDamage(err) {
		return damaged(id, "its file system cannot be mounted: "+err.Error())
	}
	return failed(err, "mount %s", id)
}

// unmount removes every mount of id, and the device that attach created. The lock of id must be
// held.
func (s *Store) unmount(ctx context.Context, id string) error {
	target := s.path(id, stageComplete, mountDir)
	for try := 1; ; try++ {
		device, err := mountedOn(target)
		if err != nil {
			return failed(err, "check whether %s is mounted", id)
		}
		if device == "" {
			return s.release(ctx, id)
		}
		_ = thaw(target) // in case the file system is frozen, which would prevent unmounting; normally, thaw fails because it is not
		// Flush the file system first: if a process in another mount namespace still uses it,
		// unmounting does not write its cached data, which would then be missing from the image and
		// its copies.
		if err := flush(target); err != nil {
			s.log.Warn("flush volume failed", "volume", id, "err", err)
		}
		err = unmount(target)
		s.step("unmounted")
		if !errors.Is(err, syscall.EBUSY) {
			if err != nil {
				return failed(err, "unmount %s", id)
			}
			continue // the directory may have several mounts
		}
		if try < unmountTries {
			if err := sleep(ctx, unmountPause); err != nil {
				return err
			}
			continue
		}
		s.log.Warn("volume in use, detaching it", "volume", id)
		if err := detach(target); err != nil {
			return failed(err, "detach %s", id)
		}
	}
}

// mounted records that id has been mounted, which means that its content may change.
func (s *Store) mounted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mounts[id]++
}

// mountCount returns the number of times that id was mounted since the store was opened.
func (s *Store) mountCount(id string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mounts[id]
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
