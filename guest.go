package bourse

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// CPUKind says how a machine's cpus are had: a share of cores that others use
// too, or cores of its own.
type CPUKind string

// The cpu kinds of the Machines API.
const (
	CPUShared      CPUKind = "shared"
	CPUPerformance CPUKind = "performance"
)

// Guest is the size of a machine, as the Machines API writes it. Zero values
// mean the default given with each field.
type Guest struct {
	CPUKind  CPUKind `json:"cpu_kind,omitempty"`  // default shared
	CPUs     int64   `json:"cpus,omitempty"`      // default 1; at most MaxCPUs
	MemoryMB MiB     `json:"memory_mb,omitempty"` // default 256 per shared, 2048 per performance cpu
	GPUs     int64   `json:"gpus,omitempty"`
	GPUKind  string  `json:"gpu_kind,omitempty"` // required with GPUs
}

// Bounds of a guest: what no host has, and no sum of hosts overflows.
const (
	MaxCPUs   = 4096
	MaxMemory = MiB(64 << 20) // 64 TiB
	MaxGPUs   = 1024
)

// WithDefaults fills in what g leaves out. It does not validate.
func (g Guest) WithDefaults() Guest {
	if g.CPUKind == "" {
		g.CPUKind = CPUShared
	}
	if g.CPUs == 0 {
		g.CPUs = 1
	}
	if g.MemoryMB == 0 && g.CPUs > 0 && g.CPUs <= MaxCPUs {
		g.MemoryMB = memoryPerCPU(g.CPUKind) * MiB(g.CPUs)
	}
	if g.GPUs == 0 && g.GPUKind != "" {
		g.GPUs = 1
	}
	return g
}

func memoryPerCPU(k CPUKind) MiB {
	if k == CPUPerformance {
		return 2048
	}
	return 256
}

// Validate reports CodeInvalid when a field is out of its range. Any memory
// size from 1 MiB is taken: a host process needs no 256 MiB steps.
func (g Guest) Validate() error {
	switch {
	case g.CPUKind != CPUShared && g.CPUKind != CPUPerformance:
		return Errorf(CodeInvalid, "invalid config.guest.cpu_kind %s: use shared or performance", Quoted(string(g.CPUKind)))
	case g.CPUs < 1 || g.CPUs > MaxCPUs:
		return Errorf(CodeInvalid, "invalid config.guest.cpus %d: use 1 to %d", g.CPUs, MaxCPUs)
	case g.MemoryMB < 1 || g.MemoryMB > MaxMemory:
		return Errorf(CodeInvalid, "invalid config.guest.memory_mb %d: use 1 to %d", g.MemoryMB, MaxMemory)
	case g.GPUs < 0 || g.GPUs > MaxGPUs:
		return Errorf(CodeInvalid, "invalid config.guest.gpus %d: use 0 to %d", g.GPUs, MaxGPUs)
	case g.GPUs > 0 && g.GPUKind == "":
		return Errorf(CodeInvalid, "invalid config.guest: gpus need a gpu_kind")
	case g.GPUKind != "" && !isLabel(g.GPUKind):
		return Errorf(CodeInvalid, "invalid config.guest.gpu_kind %s", Quoted(g.GPUKind))
	}
	return nil
}

// presets are the numbers of cpus that the Machines API's sizes have.
var presets = map[CPUKind][]int64{
	CPUShared:      {1, 2, 4, 6, 8},
	CPUPerformance: {1, 2, 4, 6, 8, 10, 12, 14, 16, 32, 64, 128},
}

// ParseSize reads a preset such as "shared-cpu-2x" or "performance-4x".
func ParseSize(s string) (Guest, error) {
	for prefix, kind := range map[string]CPUKind{"shared-cpu-": CPUShared, "performance-": CPUPerformance} {
		rest, ok := strings.CutPrefix(s, prefix)
		if !ok {
			continue
		}
		count, ok := strings.CutSuffix(rest, "x")
		n, err := strconv.ParseInt(count, 10, 64)
		if ok && err == nil && slices.Contains(presets[kind], n) {
			return Guest{CPUKind: kind, CPUs: n}.WithDefaults(), nil
		}
		var names []string
		for _, n := range presets[kind] {
			names = append(names, prefix+strconv.FormatInt(n, 10)+"x")
		}
		return Guest{}, Errorf(CodeInvalid, "invalid size %s: use %s", Quoted(s), strings.Join(names, ", "))
	}
	return Guest{}, Errorf(CodeInvalid, "invalid size %s: use one such as shared-cpu-2x or performance-1x", Quoted(s))
}

// Takes returns what a running machine of this size takes from a worker on
// which overcommit shared vCPUs are sold for each core (at least 1; what is no
// number means 1). Fractions of a milliCPU are rounded up, so that many small
// ones cannot oversell. g must be valid.
func (g Guest) Takes(overcommit float64) Amounts {
	cpu := g.CPUs * 1000
	if g.CPUKind == CPUShared && overcommit > 1 {
		cpu = max(1, int64(math.Ceil(float64(cpu)/overcommit)))
	}
	a := Amounts{{ResourceCPU, cpu}, {ResourceMemory, int64(g.MemoryMB)}}
	if g.GPUs > 0 {
		a = append(a, Amount{GPUResource(g.GPUKind), g.GPUs})
	}
	return a.Sorted()
}
