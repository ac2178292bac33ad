package volume

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/bourse-dev/bourse"
)

// A mount that is in use is asked to go a few times before it is detached.
const (
	unmountTries = 5
	unmountPause = 20 * time.Millisecond
)

// Mount mounts the volume and returns the directory; one that is mounted stays
// so. It reports CodeNotFound for an unknown volume, and
// CodeFailedPrecondition for one whose image is missing or damaged.
func (s *Store) Mount(ctx context.Context, id bourse.VolumeID) (string, error) {
	if err := id.Validate(); err != nil {
		return "", err
	}
	unlock, err := s.locks.lock(ctx, string(id))
	if err != nil {
		return "", err
	}
	defer unlock()
	if err := s.need(string(id)); err != nil {
		return "", err
	}
	return s.mount(ctx, string(id), false)
}

// Unmount unmounts the volume, if it is mounted. While something still uses
// the file system, the mount is taken away and the file system goes with its
// last user.
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

// mount mounts what id's directory has. The caller has its lock.
func (s *Store) mount(ctx context.Context, id string, scratch bool) (string, error) {
	target := s.path(id, complete, mountDir)
	device, err := mountedOn(target)
	if err != nil {
		return "", failed(err, "look whether %s is mounted", id)
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
	dev, err := attachLoop(s.path(id, complete, imageFile))
	if err != nil {
		return "", failed(err, "attach %s", id)
	}
	defer func() { _ = dev.Close() }() // the mount holds it, or nothing does
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
	if s.live && !scratch {
		if err := growFS(target, device); err != nil {
			s.log.Warn("file system of volume does not grow", "volume", id, "err", err)
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

// unmount takes away every mount of id. The caller has its lock.
func (s *Store) unmount(ctx context.Context, id string) error {
	target := s.path(id, complete, mountDir)
	for try := 1; ; try++ {
		device, err := mountedOn(target)
		if err != nil {
			return failed(err, "look whether %s is mounted", id)
		}
		if device == "" {
			return closeCrypt(ctx, id)
		}
		_ = thaw(target) // it is not frozen as a rule; a frozen one would never go
		// A process with mounts of its own may hold the file system: what it has not written then is
		// missing in the image, and in copies of it.
		if err := flush(target); err != nil {
			s.log.Warn("volume cannot be written back", "volume", id, "err", err)
		}
		err = unmount(target)
		s.step("unmounted")
		if !errors.Is(err, syscall.EBUSY) {
			if err != nil {
				return failed(err, "unmount %s", id)
			}
			continue // there may be another below
		}
		if try < unmountTries {
			if err := sleep(ctx, unmountPause); err != nil {
				return err
			}
			continue
		}
		s.log.Warn("volume is in use and is detached", "volume", id)
		if err := detach(target); err != nil {
			return failed(err, "detach %s", id)
		}
	}
}

// mounted notes that id may change from now on.
func (s *Store) mounted(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mounts[id]++
}

// mountCount returns how often id was mounted since the store was opened.
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
