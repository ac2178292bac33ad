package config

import (
	"github.com/bourse-dev/bourse"
)

// gpuSizes maps the names of machine sizes with a GPU to the kind of GPU.
var gpuSizes = map[string]string{
	"a10": "a10", "l40s": "l40s", "a100-40gb": "a100-pcie-40gb", "a100-pcie-40gb": "a100-pcie-40gb",
	"a100-80gb": "a100-sxm4-80gb", "a100-sxm4-80gb": "a100-sxm4-80gb",
}

// guest returns the size that the section describes, with defaults filled in.
func (v *VM) guest() (bourse.Guest, error) {
	var g bourse.Guest
	switch kind := gpuSizes[v.Size]; {
	case kind != "":
		g = bourse.Guest{CPUKind: bourse.CPUPerformance, CPUs: 8, MemoryMB: 32768, GPUs: 1, GPUKind: kind}
	case v.Size != "":
		var err error
		if g, err = bourse.ParseSize(v.Size); err != nil {
			return g, err
		}
	case v.GPUKind != "" && v.CPUs == 0 && v.CPUKind == "" && v.Memory == 0 && v.MemoryMB == 0:
		g = bourse.Guest{CPUKind: bourse.CPUPerformance, CPUs: 8, MemoryMB: 32768}
	}
	if v.CPUKind != "" {
		g.CPUKind = bourse.CPUKind(v.CPUKind)
	}
	if v.CPUs > 0 {
		g.CPUs = v.CPUs
	}
	if v.Memory > 0 && v.MemoryMB > 0 && int64(v.Memory) != v.MemoryMB {
		return g, bourse.Errorf(bourse.CodeInvalid, "memory is %d MB, but memory_mb is %d: set only one of them", v.Memory, v.MemoryMB)
	}
	if mb := max(int64(v.Memory), v.MemoryMB); mb > 0 {
		g.MemoryMB = bourse.MiB(mb)
	}
	if v.GPUs > 0 {
		g.GPUs = v.GPUs
	}
	if v.GPUKind != "" {
		g.GPUKind = v.GPUKind
	}
	g = g.WithDefaults()
	return g, g.Validate()
}

// rest returns the settings that the API's JSON supports but bourse.Guest has no field for.
func (v *VM) rest() map[string]any {
	out := map[string]any{}
	if len(v.KernelArgs) > 0 {
		out["kernel_args"] = v.KernelArgs
	}
	if v.MaxMemoryMB > 0 {
		out["max_memory_mb"] = v.MaxMemoryMB
	}
	if v.HostDedicationID != "" {
		out["host_dedication_id"] = v.HostDedicationID
	}
	if v.PersistRootfs != "" {
		out["persist_rootfs"] = v.PersistRootfs
	}
	return out
}
