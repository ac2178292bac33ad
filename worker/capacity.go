package worker

import (
	"maps"
	"math"
	"runtime"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Capacity is what a worker has to sell: what the host has, or what the
// operator states.
type Capacity struct {
	CPUs       float64            // cores; at most bourse.MaxCPUs
	Memory     bourse.MiB         //
	Disk       bourse.MiB         //
	GPUs       map[string]int64   // by kind
	Countables map[string]int64   // the operator's own, "slots"
	Labels     map[string]string  // arch and os are filled in by DetectCapacity
	Overcommit map[string]float64 // factor at least 1: "shared" vCPUs per core, "memory", "disk" or a countable
}

// DefaultShared is how many shared vCPUs are sold for each core unless the
// operator says otherwise: what the Machines API's own platform does.
const DefaultShared = 16

const overcommitShared = "shared"

// DetectCapacity asks the host what it has. Memory leaves a tenth to the host.
// dir is on the file system whose free space counts as disk. Where the host
// does not tell, the amount is 0 and has to be stated.
func DetectCapacity(dir string) Capacity {
	return Capacity{
		CPUs:   float64(runtime.NumCPU()),
		Memory: hostMemory() * 9 / 10,
		Disk:   hostDisk(dir),
		Labels: map[string]string{"arch": runtime.GOARCH, "os": runtime.GOOS},
	}
}

// Validate reports CodeInvalid for what no host has.
func (c *Capacity) Validate() error {
	if math.IsNaN(c.CPUs) || c.CPUs < 0 || c.CPUs > bourse.MaxCPUs {
		return bourse.Errorf(bourse.CodeInvalid, "cpus %g: use 0 to %d", c.CPUs, bourse.MaxCPUs)
	}
	for name, factor := range c.Overcommit {
		if math.IsNaN(factor) || factor < 1 || factor > 1024 {
			return bourse.Errorf(bourse.CodeInvalid, "overcommit %s=%g: use 1 to 1024", name, factor)
		}
		if name != overcommitShared && !c.amounts().Has(bourse.Resource(name)) {
			return bourse.Errorf(bourse.CodeInvalid, "overcommit %s: the worker has no such resource", bourse.Quoted(name))
		}
	}
	for _, names := range [][]string{slices.Collect(maps.Keys(c.GPUs)), slices.Collect(maps.Keys(c.Countables)), slices.Collect(maps.Keys(c.Labels))} {
		for _, name := range names {
			if err := bourse.ValidateRequirementName(name); err != nil {
				return err
			}
		}
	}
	for name := range c.Countables {
		if _, isLabel := c.Labels[name]; isLabel {
			return bourse.Errorf(bourse.CodeInvalid, "%s is stated both as a resource and as a label", name)
		}
	}
	return c.amounts().Validate()
}

// amounts is the capacity as ledger lines, before overcommit.
func (c *Capacity) amounts() bourse.Amounts {
	a := bourse.Amounts{
		{Resource: bourse.ResourceCPU, Amount: int64(c.CPUs * 1000)},
		{Resource: bourse.ResourceMemory, Amount: int64(c.Memory)},
		{Resource: bourse.ResourceDisk, Amount: int64(c.Disk)},
	}
	for kind, n := range c.GPUs {
		a = append(a, bourse.Amount{Resource: bourse.GPUResource(kind), Amount: n})
	}
	for name, n := range c.Countables {
		a = append(a, bourse.Amount{Resource: bourse.Resource(name), Amount: n})
	}
	return a.Sorted()
}

// shared gives how many shared vCPUs are sold for each core.
func (c *Capacity) shared() float64 {
	if f, ok := c.Overcommit[overcommitShared]; ok {
		return f
	}
	return DefaultShared
}
