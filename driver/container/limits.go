package container

import (
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// minMemory and minPIDs are the lowest limits under which a runtime can start a container,
// because the runtime is a Go program that itself runs within the limits. Once the container is
// created, the process limit is lowered to the ordered value; the memory limit is not.
const minMemory, minPIDs = 16, 32 // in MiB, and in threads

// cpuTime is a limit of processor time. All values are in µs, as in the kernel.
type cpuTime struct{ period, quota, burst int64 }

// cpuTimeOf converts the processor limits of an order with a quota, and adjusts them to the
// kernel's bounds.
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

// resourcesOf returns a container's limits in the form that a runtime expects. Fields that are
// nil mean no limit. swap reports whether the host accounts for swap; if so, the memory limit
// includes swap.
func resourcesOf(l driver.Limits, swap bool) *specs.LinuxResources {
	r := &specs.LinuxResources{}
	if l.Memory > 0 {
		limit := int64(max(l.Memory, minMemory)) << 20
		r.Memory = &specs.LinuxMemory{Limit: &limit}
		if swap {
			r.Memory.Swap = &limit
		}
	}
	if l.PIDs > 0 {
		r.Pids = &specs.LinuxPids{Limit: new(int64(max(l.PIDs, minPIDs)))}
	}
	if l.CPUWeight > 0 {
		// One CPU corresponds to the kernel's default of 1024, and the bounds are the kernel's.
		// Runtimes convert shares to a v2 weight.
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

// setLateLimits sets the limits that a runtime either does not support or could not start under. The
// container must have been created, but its program must not be running yet.
func setLateLimits(g *cgroup.Tree, path string, l driver.Limits) error {
	if l.PIDs > 0 && l.PIDs < minPIDs && g.Has("pids") {
		if err := g.Set("pids", path, "pids.max", strconv.Itoa(l.PIDs)); err != nil {
			return err
		}
	}
	if burst := cpuTimeOf(l).burst; l.CPUQuota > 0 && burst > 0 {
		_ = g.Set("cpu", path, g.BurstFile(), strconv.FormatInt(burst, 10)) // the file is missing before Linux 5.14
	}
	return nil
}
