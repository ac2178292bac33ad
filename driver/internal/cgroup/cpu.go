package cgroup

import (
	"time"

	"github.com/bourse-dev/bourse/driver"
)

// Bounds of the kernel, in µs; see Documentation/scheduler/sched-bwc.
const (
	leastQuota    = 1000
	leastPeriod   = 1000
	mostPeriod    = 1_000_000
	defaultPeriod = 100_000
)

// CPU are the figures of a ceiling of processor time, in µs.
type CPU struct {
	Period int64
	Quota  int64 // per period
	Burst  int64 // that may be saved up; 0: none
}

// CPUOf returns the figures for limits that have a CPUQuota, within what the
// kernel takes: a burst is at most the quota.
func CPUOf(l driver.Limits) CPU {
	c := CPU{Period: defaultPeriod}
	if l.CPUPeriod > 0 {
		c.Period = min(max(leastPeriod, int64(l.CPUPeriod/time.Microsecond)), mostPeriod)
	}
	c.Quota = max(leastQuota, int64(l.CPUQuota)*c.Period/1000)
	c.Burst = min(max(0, int64(l.CPUBurst/time.Microsecond)), c.Quota)
	return c
}

// Shares returns v1's share of a weight: one cpu is the default, 1024.
func Shares(l driver.Limits) int64 {
	return min(max(2, int64(l.CPUWeight)*1024/1000), 262144)
}

// Weight returns v2's share of a weight: one cpu is the default, 100.
func Weight(l driver.Limits) int64 { return min(max(1, int64(l.CPUWeight)/10), 10000) }
