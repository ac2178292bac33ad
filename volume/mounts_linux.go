package volume

import "github.com/moby/sys/mountinfo"

// mountsBelow returns the mount points below a directory, the latest first, so
// that those on top of others come before them.
func mountsBelow(dir string) ([]string, error) {
	mounts, err := mountinfo.GetMounts(mountinfo.PrefixFilter(dir))
	var below []string
	for _, m := range mounts {
		if m.Mountpoint != dir {
			below = append([]string{m.Mountpoint}, below...)
		}
	}
	return below, err
}
