package volume

import (
	"context"
	"errors"
	"os"

	"github.com/bourse-dev/bourse"
)

// Usage returns the usage of the volume's file system, which need not be mounted. The usage is
// unknown, and all values are zero, if the volume is encrypted and not mounted, or if a virtual
// machine is using it. If a virtual machine has used the volume before, the values come from a
// superblock that the guest may have forged. Usage does not wait for other operations on the
// volume.
func (s *Store) Usage(_ context.Context, id bourse.VolumeID) (bourse.VolumeUsage, error) {
	if err := id.Validate(); err != nil {
		return bourse.VolumeUsage{}, err
	}
	if err := s.requireComplete(string(id)); err != nil {
		return bourse.VolumeUsage{}, err
	}
	target := s.path(string(id), stageComplete, mountDir)
	switch device, err := mountedOn(target); {
	case err != nil:
		return bourse.VolumeUsage{}, failed(err, "check whether %s is mounted", id)
	case device != "":
		u, err := statUsage(target)
		return u, failed(err, "usage of %s", id)
	}
	if attached, err := s.isAttached(string(id)); err != nil || attached {
		return bourse.VolumeUsage{}, err
	}
	image, err := os.Open(s.path(string(id), stageComplete, imageFile))
	if errors.Is(err, os.ErrNotExist) {
		return bourse.VolumeUsage{}, damaged(string(id), "its image is missing")
	}
	if err != nil {
		return bourse.VolumeUsage{}, failed(err, "usage of %s", id)
	}
	defer func() { _ = image.Close() }() // Close cannot lose data, because the file is only read
	if crypted, err := s.isEncrypted(string(id), stageComplete, image); err != nil || crypted {
		return bourse.VolumeUsage{}, err
	}
	sb, err := readSuperblock(image)
	if err != nil {
		return bourse.VolumeUsage{}, damaged(string(id), err.Error())
	}
	if st, err := image.Stat(); err != nil || sb.Blocks > st.Size()/sb.Block {
		return bourse.VolumeUsage{}, damaged(string(id), "its image is shorter than its file system")
	}
	return sb.usage(), nil
}
