package volume

import "github.com/moby/sys/mountinfo"

// mountsBelow returns the mount points below a directory, latest first, so that mounts on top of others come first.
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
