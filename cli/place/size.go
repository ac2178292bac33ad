package place

import (
	"errors"
	"strconv"

	"github.com/spf13/pflag"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/cli"
)

// Size holds the flags for a machine's size.
type Size struct {
	preset, memory, cpuKind, gpuKind string
	gpus                             int64
	cpus                             cpuCount
}

// Bind adds the flags to a flag set.
func (f *Size) Bind(flags *pflag.FlagSet) {
	flags.StringVar(&f.preset, "vm-size", "", "`preset` such as shared-cpu-2x or performance-1x")
	flags.Var(&f.cpus, "vm-cpus", "`number` of CPUs, 1 or an even number; unless the worker is configured otherwise, 16 shared CPUs are one core (default: 1)")
	flags.StringVar(&f.memory, "vm-memory", "", "memory `size`, such as 512MiB or 2GiB (default: 256MiB per shared CPU)")
	flags.StringVar(&f.cpuKind, "vm-cpu-kind", "", "`kind` of CPUs, shared or performance (default: shared)")
	flags.Int64Var(&f.gpus, "vm-gpus", 0, "`number` of GPUs")
	flags.StringVar(&f.gpuKind, "vm-gpu-kind", "", "`kind` of GPUs")
}

// cpuCount is a flag for a number of CPUs. It accepts only numbers that the Machines API
// supports; 0 means that the flag is not set.
type cpuCount int64

// Set implements pflag.Value.
func (c *cpuCount) Set(text string) error {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > bourse.MaxCPUs || n > 1 && n%2 != 0 {
		return errors.New("use 1 or an even number")
	}
	*c = cpuCount(n)
	return nil
}

// String implements pflag.Value.
func (c *cpuCount) String() string {
	if *c == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*c), 10)
}

// Type implements pflag.Value.
func (c *cpuCount) Type() string { return "number" }

// Guest returns the size that the flags describe. Other flags override the values of a
// preset.
func (f *Size) Guest() (*bourse.Guest, error) { return f.Change(bourse.Guest{}) }

// Change applies the flags to g. A preset replaces all of g before the other flags are
// applied.
func (f *Size) Change(g bourse.Guest) (*bourse.Guest, error) {
	if f.preset != "" {
		preset, err := bourse.ParseSize(f.preset)
		if err != nil {
			return nil, cli.FlagError("--vm-size", err)
		}
		g = preset
	}
	if f.cpus != 0 {
		if g.CPUs = int64(f.cpus); f.memory == "" {
			g.MemoryMB = 0 // use the default for the new number of CPUs
		}
	}
	if f.memory != "" {
		m, err := cli.ParseMiB(f.memory)
		if err != nil {
			return nil, cli.FlagError("--vm-memory", err)
		}
		if g.MemoryMB = m; m == 0 {
			return nil, bourse.Errorf(bourse.CodeInvalid, "--vm-memory 0: use 1 MiB or more")
		}
	}
	if f.cpuKind != "" {
		g.CPUKind = bourse.CPUKind(f.cpuKind)
	}
	if f.gpus != 0 {
		g.GPUs = f.gpus
	}
	if f.gpuKind != "" {
		g.GPUKind = f.gpuKind
	}
	g = g.WithDefaults()
	return &g, g.Validate()
}

// sizes are the presets that completion suggests. Other presets are also accepted.
var sizes = []string{
	"shared-cpu-1x", "shared-cpu-2x", "shared-cpu-4x", "shared-cpu-8x",
	"performance-1x", "performance-2x", "performance-4x", "performance-8x", "performance-16x",
}
