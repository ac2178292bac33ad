//go:build !linux

package tuning

func hostMemory() uint64 { return 0 }

func cgroupMemory(_, _ string) uint64 { return 0 }
