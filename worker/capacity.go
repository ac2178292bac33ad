package worker

import (
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
)

// Capacity describes the resources that a worker offers, as detected on the host or
// configured by the operator.
type Capacity struct {
	CPUs       float64             // number of cores; at most bourse.MaxCPUs
	Memory     bourse.MiB          //
	Disk       bourse.MiB          //
	Images     bourse.MiB          // part of Disk reserved for images; default: a fifth; unused if the worker cannot run images
	GPUs       map[string]int64    // number of GPUs by kind
	Devices    map[string][]string // qualified CDI names of GPUs by kind; each belongs to one machine at a time
	Countables map[string]int64    // further countable resources by name, such as "slots"
	Labels     map[string]string   // arch and os are filled in by DetectCapacity
	Overcommit map[string]float64  // factors of at least 1, by resource: "shared" vCPUs per core, "memory", "disk" or a countable
}

// imagesDivisor determines the default disk space for images: 1/imagesDivisor of the disk.
const imagesDivisor = 5

// ImageBudget returns the disk space for images. The ledger contains only the rest of
// the disk, for machines and volumes.
func (c *Capacity) ImageBudget() bourse.MiB {
	if c.Images > 0 {
		return c.Images
	}
	return c.Disk / imagesDivisor
}

// DefaultShared is the default number of shared vCPUs per core. It is the same as on Fly.io.
const DefaultShared = 16

const overcommitShared = "shared"

// DetectCapacity returns the host's capacity. It reserves a tenth of the memory for the host itself. The disk capacity
// is the free space of the file system that contains dir. If the host does not report an amount, the amount is 0, and
// the operator must configure it.
func DetectCapacity(dir string) Capacity {
	return Capacity{
		CPUs:   float64(runtime.NumCPU()),
		Memory: hostMemory() * 9 / 10,
		Disk:   hostDisk(dir),
		Labels: map[string]string{"arch": runtime.GOARCH, "os": runtime.GOOS},
	}
}

// Validate returns CodeInvalid if a value is out of range, or if values contradict each
// other.
func (c *Capacity) Validate() error {
	if math.IsNaN(c.CPUs) || c.CPUs < 0 || c.CPUs > bourse.MaxCPUs {
		return bourse.Errorf(bourse.CodeInvalid, "cpus %g: use 0 to %d", c.CPUs, bourse.MaxCPUs)
	}
	if c.Images < 0 || c.Images > c.Disk {
		return bourse.Errorf(bourse.CodeInvalid, "images %d MiB: use 0 to the %d MiB of the disk", c.Images, c.Disk)
	}
	if err := c.validateDevices(); err != nil {
		return err
	}
	for name, factor := range c.Overcommit {
		if math.IsNaN(factor) || factor < 1 || factor > 1024 {
			return bourse.Errorf(bourse.CodeInvalid, "overcommit %s=%g: use 1 to 1024", name, factor)
		}
		if name != overcommitShared && !c.amounts().Has(bourse.Resource(name)) {
			return bourse.Errorf(bourse.CodeInvalid, "overcommit %s: the worker has no such resource", bourse.Quoted(name))
		}
	}
	for _, names := range [][]string{slices.Collect(maps.Keys(c.gpus())), slices.Collect(maps.Keys(c.Countables)), slices.Collect(maps.Keys(c.Labels))} {
		for _, name := range names {
			if err := bourse.ValidateRequirementName(name); err != nil {
				return err
			}
		}
	}
	for name := range c.Countables {
		if _, isLabel := c.Labels[name]; isLabel {
			return bourse.Errorf(bourse.CodeInvalid, "%s is both a resource and a label", name)
		}
	}
	return c.amounts().Validate()
}

// amounts returns the capacity as ledger amounts, before overcommit.
func (c *Capacity) amounts() bourse.Amounts {
	a := bourse.Amounts{
		{Resource: bourse.ResourceCPU, Amount: int64(c.CPUs * 1000)},
		{Resource: bourse.ResourceMemory, Amount: int64(c.Memory)},
		{Resource: bourse.ResourceDisk, Amount: int64(c.Disk)},
	}
	for kind, n := range c.gpus() {
		a = append(a, bourse.Amount{Resource: bourse.GPUResource(kind), Amount: n})
	}
	for name, n := range c.Countables {
		a = append(a, bourse.Amount{Resource: bourse.Resource(name), Amount: n})
	}
	return a.Sorted()
}

// shared returns the number of shared vCPUs per core.
func (c *Capacity) shared() float64 {
	if f, ok := c.Overcommit[overcommitShared]; ok {
		return f
	}
	return DefaultShared
}

// ledger returns the worker's ledger: its capacity times the overcommit factors,
// excluding the disk space for images.
func (c *Config) ledger() admit.Ledger {
	totals := c.Capacity.amounts()
	for i, a := range totals {
		if a.Resource == bourse.ResourceDisk && c.Images != nil {
			totals[i].Amount -= int64(c.Capacity.ImageBudget())
			a = totals[i]
		}
		if f, ok := c.Capacity.Overcommit[string(a.Resource)]; ok {
			totals[i].Amount = int64(min(float64(a.Amount)*f, float64(bourse.MaxAmount)))
		}
	}
	l := admit.Ledger{Totals: totals, Shared: c.Capacity.shared(), Rootfs: c.Rootfs}
	if totals.Has(bourse.ResourceDisk) {
		l.MachineDisk = c.MachineDisk
	}
	return l
}

// gpus returns the number of GPUs of each kind: the number of named devices if the kind has any, and otherwise the
// configured number.
func (c *Capacity) gpus() map[string]int64 {
	if len(c.Devices) == 0 {
		return c.GPUs
	}
	out := maps.Clone(c.GPUs)
	if out == nil {
		out = map[string]int64{}
	}
	for kind, names := range c.Devices {
		out[kind] = int64(len(names))
	}
	return out
}

// validateDevices returns CodeInvalid if a device is named twice, a name is not a qualified CDI name
// (vendor.com/class=name), or the configured number of GPUs of a kind differs from the number of device names for that
// kind.
func (c *Capacity) validateDevices() error {
	seen := map[string]bool{}
	for kind, names := range c.Devices {
		if n, both := c.GPUs[kind]; both && n != int64(len(names)) {
			return bourse.Errorf(bourse.CodeInvalid, "%d gpus of kind %s are configured, but %d devices are listed for them", n, kind, len(names))
		}
		for _, name := range names {
			class, device, ok := strings.Cut(name, "=")
			if vendor, _, slash := strings.Cut(class, "/"); !ok || !slash || vendor == "" || device == "" {
				return bourse.Errorf(bourse.CodeInvalid, "device %s: use a name such as nvidia.com/gpu=0", bourse.Quoted(name))
			}
			if seen[name] {
				return bourse.Errorf(bourse.CodeInvalid, "device %s is listed twice", bourse.Quoted(name))
			}
			seen[name] = true
		}
	}
	return nil
}
