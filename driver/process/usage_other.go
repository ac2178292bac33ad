//go:build unix && !linux

package process

import (
	"syscall"

	"github.com/bourse-dev/bourse/driver"
)

// Without /proc, usage cannot be measured.

func account([]int) driver.Usage {
	return driver.Usage{CPU: -1, Memory: -1, PIDs: -1, ReadByte: -1, WriteByte: -1, Throttled: -1}
}

func processTree(pid int) []int { return []int{pid} }

func killSession(sid int) { killGroup(sid, syscall.SIGKILL) }
