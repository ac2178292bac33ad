// Package volumetest provides in-memory implementations of a host's volumes and of other
// workers' volumes, for tests.
package volumetest

import (
	"context"
	"maps"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// Host is an in-memory implementation of volumes.Host. It outlives the daemons that use it. Like a real host, it
// refuses operations that would lose data, and resumes an interrupted Fill where it stopped.
type Host struct {
	mu      sync.Mutex
	labels  map[string]string
	volumes map[bourse.VolumeID]*Volume
	snaps   map[bourse.SnapshotID]snapshot
	filling map[bourse.VolumeID]filling
	forks   map[string]snapshot // copies of volumes in use, made for exports in progress; keyed by volume.Position.Moment
	scratch map[bourse.MachineID]int64
	forked  int
	fetched int // total number of bytes that Fill has received
	busy    map[string]int
	fault   func(call, id string) error // called before each call
}

// Volume is a volume on a Host.
type Volume struct {
	SizeGB  int64
	Data    string
	Used    int64 // number of blocks in use in addition to Data
	Mounted bool  // whether the volume is mounted or attached now
	VM      bool  // whether a virtual machine has used the volume
	Mounts  int   // how many times the volume was mounted
}

type snapshot struct {
	of     bourse.VolumeID
	sizeGB int64
	data   string
}

// NewHost returns a host without volumes.
func NewHost() *Host {
	return &Host{
		labels:  map[string]string{admit.LabelVolume: "memory"},
		volumes: map[bourse.VolumeID]*Volume{}, snaps: map[bourse.SnapshotID]snapshot{},
		filling: map[bourse.VolumeID]filling{}, forks: map[string]snapshot{}, busy: map[string]int{},
		scratch: map[bourse.MachineID]int64{},
	}
}

// call runs fn as an operation on the volume or snapshot with this id. It fails if another operation on the same volume
// is in progress.
func (f *Host) call(ctx context.Context, name, id string, fn func() error) error {
	f.mu.Lock()
	fault := f.fault
	f.busy[id]++
	alone := f.busy[id] == 1 || name == "Usage" || name == "Export"
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy[id]--
	}()
	if !alone && strings.HasPrefix(id, "vol_") && name != "Mount" && name != "Attach" && name != "Unmount" {
		return bourse.Errorf(bourse.CodeInternal, "%s of %s while another operation on it is in progress", name, id)
	}
	if fault != nil {
		if err := fault(name, id); err != nil {
			return err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return fn()
}

func (f *Host) get(id bourse.VolumeID) (*Volume, error) {
	v := f.volumes[id]
	if v == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "%s not found on this host", id)
	}
	return v, nil
}

// Labels implements volumes.Host.
func (f *Host) Labels() map[string]string { return f.labels }

// Create implements volumes.Host.
func (f *Host) Create(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder) error {
	return f.call(ctx, "Create", string(id), func() error {
		if f.volumes[id] == nil {
			f.volumes[id] = &Volume{SizeGB: spec.SizeGB}
		}
		return nil
	})
}

// Mount implements volumes.Host.
func (f *Host) Mount(ctx context.Context, id bourse.VolumeID) (path string, err error) {
	return "/volumes/" + string(id), f.call(ctx, "Mount", string(id), func() error {
		v, err := f.get(id)
		if err == nil && v.VM {
			err = bourse.Errorf(bourse.CodeFailedPrecondition, "a virtual machine has used volume %s", id)
		}
		if err == nil && !v.Mounted {
			v.Mounted = true
			v.Mounts++
		}
		return err
	})
}

// Attach implements volumes.Host.
func (f *Host) Attach(ctx context.Context, id bourse.VolumeID) (device string, err error) {
	return "/dev/" + string(id), f.call(ctx, "Attach", string(id), func() error {
		v, err := f.get(id)
		if err == nil && !v.Mounted {
			v.Mounted, v.VM = true, true
			v.Mounts++
		}
		return err
	})
}

// Unmount implements volumes.Host.
func (f *Host) Unmount(ctx context.Context, id bourse.VolumeID) error {
	return f.call(ctx, "Unmount", string(id), func() error {
		v, err := f.get(id)
		if err == nil {
			v.Mounted = false
		}
		return err
	})
}

// ExtendsLive implements volumes.Host.
func (f *Host) ExtendsLive(id bourse.VolumeID) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.volumes[id]
	return v == nil || !v.VM
}

// Extend implements volumes.Host.
func (f *Host) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) error {
	return f.call(ctx, "Extend", string(id), func() error {
		v, err := f.get(id)
		if err == nil {
			v.SizeGB = max(v.SizeGB, sizeGB)
		}
		return err
	})
}

// Destroy implements volumes.Host.
func (f *Host) Destroy(ctx context.Context, id bourse.VolumeID) error {
	return f.call(ctx, "Destroy", string(id), func() error {
		if v := f.volumes[id]; v != nil && v.Mounted {
			return bourse.Errorf(bourse.CodeInternal, "destroy %s, which is mounted", id)
		}
		delete(f.volumes, id)
		delete(f.filling, id)
		return nil
	})
}

// Use sets the number of blocks in use on a volume.
func (f *Host) Use(id bourse.VolumeID, blocks int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.volumes[id].Used = blocks
}

// Usage implements volumes.Host.
func (f *Host) Usage(ctx context.Context, id bourse.VolumeID) (u bourse.VolumeUsage, err error) {
	return u, f.call(ctx, "Usage", string(id), func() error {
		v, err := f.get(id)
		if err == nil {
			total := v.SizeGB << 18
			free := max(0, total-v.Used-int64(len(v.Data))) // each byte of Data takes a block
			u = bourse.VolumeUsage{BlockSize: 4096, Blocks: total, BlocksFree: free, BlocksAvail: free}
		}
		return err
	})
}

// Copyable implements volumes.Host.
func (f *Host) Copyable(id bourse.VolumeID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if v := f.volumes[id]; v != nil && v.VM && v.Mounted {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "a virtual machine is using volume %s", id)
	}
	return nil
}

// Snapshot implements volumes.Host.
func (f *Host) Snapshot(ctx context.Context, id bourse.VolumeID, snap bourse.SnapshotID) (i volume.Info, err error) {
	return i, f.call(ctx, "Snapshot", string(id), func() error {
		s, ok := f.snaps[snap]
		if !ok {
			v, err := f.get(id)
			if err != nil {
				return err
			}
			s = snapshot{id, v.SizeGB, v.Data}
			f.snaps[snap] = s
		}
		i = volume.Info{Bytes: int64(len(s.data)) * 4096, Digest: digestOf(s.data), SizeGB: s.sizeGB}
		return nil
	})
}

// RemoveSnapshot implements volumes.Host.
func (f *Host) RemoveSnapshot(ctx context.Context, snap bourse.SnapshotID) error {
	return f.call(ctx, "RemoveSnapshot", string(snap), func() error { delete(f.snaps, snap); return nil })
}

// Recover implements volumes.Host.
func (f *Host) Recover(ctx context.Context, keep func(string) bool) error {
	return f.call(ctx, "Recover", "", func() error {
		maps.DeleteFunc(f.volumes, func(id bourse.VolumeID, _ *Volume) bool { return !keep(string(id)) })
		maps.DeleteFunc(f.filling, func(id bourse.VolumeID, _ filling) bool { return !keep(string(id)) })
		maps.DeleteFunc(f.snaps, func(id bourse.SnapshotID, _ snapshot) bool { return !keep(string(id)) })
		maps.DeleteFunc(f.scratch, func(id bourse.MachineID, _ int64) bool { return !keep(string(id)) })
		clear(f.forks)
		return nil
	})
}

// Write sets a volume's data, as the program of its machine would.
func (f *Host) Write(id bourse.VolumeID, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.volumes[id].Data = data
}

// Read returns a volume. ok is false if the volume does not exist.
func (f *Host) Read(id bourse.VolumeID) (v Volume, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.volumes[id]; x != nil {
		return *x, true
	}
	return v, false
}

// Kept returns the number of snapshots, and the number of copies that are being exported.
func (f *Host) Kept() (snapshots, forks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.snaps), len(f.forks)
}

// SetFault sets a function that is called before each call. If it returns an error, the
// call fails with that error.
func (f *Host) SetFault(fault func(call, id string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// Left returns the ids of all objects that remain on the host, and the ids of the mounted volumes.
func (f *Host) Left() (things []string, mounted []bourse.VolumeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, v := range f.volumes {
		things = append(things, string(id))
		if v.Mounted {
			mounted = append(mounted, id)
		}
	}
	for id := range f.filling {
		things = append(things, string(id))
	}
	for id := range f.scratch {
		things = append(things, string(id))
	}
	for id := range f.snaps {
		things = append(things, string(id))
	}
	return things, mounted
}

// Fetched returns the number of bytes that Fill has received.
func (f *Host) Fetched() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fetched
}

// Stray creates a volume and a snapshot that no worker has a record of.
func (f *Host) Stray(id bourse.VolumeID, snap bourse.SnapshotID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.volumes[id], f.snaps[snap] = &Volume{}, snapshot{}
}

var _ volumes.Host = (*Host)(nil)
