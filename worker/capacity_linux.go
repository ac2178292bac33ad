package worker

import (
	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

func hostMemory() bourse.MiB {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return bourse.MiB(info.Totalram * uint64(info.Unit) >> 20)
}

func hostDisk(dir string) bourse.MiB {
	var fs unix.Statfs_t
	if unix.Statfs(dir, &fs) != nil {
		return 0
	}
	return bourse.MiB(fs.Bavail * uint64(fs.Bsize) >> 20)
}
