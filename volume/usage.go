package volume

import (
	"context"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// Usage returns how full the volume's file system is, mounted or not. That of an
// encrypted volume that is not mounted is unknown: all zero. It does not
// wait for operations on the volume.
func (s *Store) Usage(_ context.Context, id bourse.VolumeID) (bourse.VolumeUsage, error) {
	if err := id.Validate(); err != nil {
		return bourse.VolumeUsage{}, err
	}
	if err := s.need(string(id)); err != nil {
		return bourse.VolumeUsage{}, err
	}
	target := s.path(string(id), complete, mountDir)
	switch device, err := mountedOn(target); {
	case err != nil:
		return bourse.VolumeUsage{}, failed(err, "look whether %s is mounted", id)
	case device != "":
		u, err := statUsage(target)
		return u, failed(err, "usage of %s", id)
	}
	image, err := os.Open(s.path(string(id), complete, imageFile))
	if errors.Is(err, os.ErrNotExist) {
		return bourse.VolumeUsage{}, damaged(string(id), "its image is missing")
	}
	if err != nil {
		return bourse.VolumeUsage{}, failed(err, "usage of %s", id)
	}
	defer func() { _ = image.Close() }() // only read
	if crypted, err := encrypted(image); err != nil || crypted {
		return bourse.VolumeUsage{}, failed(err, "read %s", id)
	}
	sb, err := readSuperblock(image)
	if err != nil {
		return bourse.VolumeUsage{}, damaged(string(id), err.Error())
	}
	return sb.usage(), nil
}
