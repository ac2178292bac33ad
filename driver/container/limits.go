package container

import (
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// A runtime starts a container from within its limits, and is a Go program
// itself: below these it could not always. The limit of processes is lowered
// to what was ordered before the program runs; that of memory stays.
const leastMemory, leastPIDs = 16, 32 // MiB, and threads

// cpuTime is a ceiling of processor time, in µs as the kernel takes it.
type cpuTime struct{ period, quota, burst int64 }

// cpuTimeOf returns the ceiling of an order that has one. The bounds are the
// kernel's.
func cpuTimeOf(l driver.Limits) cpuTime {
	const least, longest, usual = 1000, 1_000_000, 100_000
	c := cpuTime{period: usual}
	if l.CPUPeriod > 0 {
		c.period = min(max(least, l.CPUPeriod.Microseconds()), longest)
	}
	c.quota = max(least, int64(l.CPUQuota)*c.period/1000)
	c.burst = min(max(0, l.CPUBurst.Microseconds()), c.quota)
	return c
}

// resourcesOf are a container's limits as a runtime takes them; nil leaves a
// thing unlimited. swap: the host accounts swap, and memory includes it.
func resourcesOf(l driver.Limits, swap bool) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if l.Memory > 0 {
		limit := int64(max(l.Memory, leastMemory)) << 20
		r.Memory = &specs.LinuxMemory{Limit: &limit}
		if swap {
			r.Memory.Swap = &limit
		}
	}
	if l.PIDs > 0 {
		r.Pids = &specs.LinuxPids{Limit: new(int64(max(l.PIDs, leastPIDs)))}
	}
	if l.CPUWeight > 0 {
		// One cpu is the default, 1024; the bounds are the kernel's. Runtimes
		// make a v2 weight of it.
		shares := min(max(2, uint64(l.CPUWeight)*1024/1000), 262144)
		r.CPU = &specs.LinuxCPU{Shares: &shares}
	}
	if l.CPUQuota > 0 {
		if r.CPU == nil {
			r.CPU = &specs.LinuxCPU{}
		}
		c := cpuTimeOf(l)
		r.CPU.Quota, r.CPU.Period = &c.quota, new(uint64(c.period))
	}
	return r
}

// tighten sets limits of a container that has been made and does not run yet:
// those that a runtime does not know, or could not start under.
func tighten(g *cgroup.Tree, path string, l driver.Limits) error {
	if l.PIDs > 0 && l.PIDs < leastPIDs && g.Has("pids") {
		if err := g.Set("pids", path, "pids.max", strconv.Itoa(l.PIDs)); err != nil {
			return err
		}
	}
	if burst := cpuTimeOf(l).burst; l.CPUQuota > 0 && burst > 0 {
		_ = g.Set("cpu", path, g.BurstFile(), strconv.FormatInt(burst, 10)) // missing before Linux 5.14
	}
	return nil
}
