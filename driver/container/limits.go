package container

import (
	"strconv"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/driver/internal/cgroup"
)

// minMemory (in MiB) and minPIDs are the lowest limits at which a runtime can start a container.
// The limits also apply to the runtime itself, which is a Go program. Once the container has been
// created, the process limit is lowered to the value in the order; the memory limit is not.
const minMemory, minPIDs = 16, 32

// resourcesOf converts a task's limits to the form that a runtime expects. A nil field means no
// limit. If swap is set, the memory limit includes swap; see cgroup.Tree.Swap.
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
		// One CPU corresponds to 1024 shares, the kernel's default. The bounds are also the
		// kernel's. With cgroup v2, runtimes convert the shares to a weight.
		shares := min(max(2, uint64(l.CPUWeight)*1024/1000), 262144)
		r.CPU = &specs.LinuxCPU{Shares: &shares}
	}
	if l.CPUQuota > 0 {
		if r.CPU == nil {
			r.CPU = &specs.LinuxCPU{}
		}
		c := cgroup.CPUOf(l)
		r.CPU.Quota, r.CPU.Period = &c.Quota, new(uint64(c.Period))
	}
	return r
}

// setLateLimits sets the limits that the runtime does not support, and a process limit that would
// be too low for the runtime itself. Call it after the container has been created and before its
// program starts.
func setLateLimits(g *cgroup.Tree, path string, l driver.Limits) error {
	if l.PIDs > 0 && l.PIDs < minPIDs && g.Has("pids") {
		if err := g.Set("pids", path, "pids.max", strconv.Itoa(l.PIDs)); err != nil {
			return err
		}
	}
	if burst := cgroup.CPUOf(l).Burst; l.CPUQuota > 0 && burst > 0 {
		_ = g.Set("cpu", path, g.BurstFile(), strconv.FormatInt(burst, 10)) // fails before Linux 5.14, which lacks the file
	}
	return nil
}
