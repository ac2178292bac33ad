package cgroup

import (
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// The kernel's bounds and default, in µs; see Documentation/scheduler/sched-bwc.
const (
	minQuota      = 1000
	minPeriod     = 1000
	maxPeriod     = 1_000_000
	defaultPeriod = 100_000
)

// CPU is a limit on processor time. All values are in µs.
type CPU struct {
	Period int64
	Quota  int64 // processor time per period
	Burst  int64 // unused time that may accumulate; 0: none
}

// CPUOf converts l's processor limits to µs and clamps them to the kernel's bounds. l must have a
// CPUQuota. The burst is at most the quota.
func CPUOf(l driver.Limits) CPU {
	c := CPU{Period: defaultPeriod}
	if l.CPUPeriod > 0 {
		c.Period = min(max(minPeriod, int64(l.CPUPeriod/time.Microsecond)), maxPeriod)
	}
	c.Quota = max(minQuota, int64(l.CPUQuota)*c.Period/1000)
	c.Burst = min(max(0, int64(l.CPUBurst/time.Microsecond)), c.Quota)
	return c
}

// shares converts l.CPUWeight to shares for cgroup v1. One CPU corresponds to 1024 shares, the
// kernel's default for a group.
func shares(l driver.Limits) int64 {
	return min(max(2, int64(l.CPUWeight)*1024/1000), 262144)
}

// weight converts l.CPUWeight to a weight for cgroup v2. One CPU corresponds to a weight of 100,
// the kernel's default for a group.
func weight(l driver.Limits) int64 { return min(max(1, int64(l.CPUWeight)/10), 10000) }
