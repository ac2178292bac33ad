package volumetest

import (
	"context"
	"maps"
	"slices"

	"github.com/bourse-dev/bourse"
)

// Scratch creates a machine's scratch space, or returns the existing one.
func (f *Host) Scratch(ctx context.Context, machine bourse.MachineID, sizeMiB int64) (string, error) {
	return "/scratch/" + string(machine), f.call(ctx, "Scratch", string(machine), func() error {
		if f.scratch == nil {
			f.scratch = map[bourse.MachineID]int64{}
		}
		f.scratch[machine] = sizeMiB
		return nil
	})
}

// RemoveScratch removes a machine's scratch space.
func (f *Host) RemoveScratch(ctx context.Context, machine bourse.MachineID) error {
	return f.call(ctx, "RemoveScratch", string(machine), func() error { delete(f.scratch, machine); return nil })
}

// Scratches returns the machines that have scratch space.
func (f *Host) Scratches() []bourse.MachineID {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Sorted(maps.Keys(f.scratch))
}

// Mounted returns the mounted volumes.
func (f *Host) Mounted() []bourse.VolumeID {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []bourse.VolumeID
	for _, id := range slices.Sorted(maps.Keys(f.volumes)) {
		if f.volumes[id].Mounted {
			out = append(out, id)
		}
	}
	return out
}
