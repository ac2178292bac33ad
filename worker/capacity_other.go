//go:build !linux

package worker

import "github.com/bourse-dev/bourse"

// On other systems, the operator must configure memory and disk.
const (
	statedMemory = bourse.MiB(8 << 10)
	statedDisk   = bourse.MiB(64 << 10)
)

func hostMemory() bourse.MiB { return statedMemory }

func hostDisk(string) bourse.MiB { return statedDisk }
