package volume

import "github.com/moby/sys/mountinfo"

// mountsBelow returns the mount points below a directory, most recent first, so that a mount on top of another comes
// before it.
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
