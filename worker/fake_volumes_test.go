package worker

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

// memVolumes is a host's volumes in memory, which outlive the daemons that are
// given them. Like the real ones it refuses what would lose data, and keeps
// what it has half done.
type memVolumes struct {
	mu      sync.Mutex
	labels  map[string]string
	volumes map[bourse.VolumeID]*memVolume
	snaps   map[bourse.SnapshotID]memSnapshot
	filling map[bourse.VolumeID]map[int]string // chunks that have come
	forks   map[string]memSnapshot             // by manifest
	scratch map[bourse.MachineID]int64
	forked  int
	fetched int // chunks, ever
	busy    map[string]int
	fault   func(call, id string) error // before each call
}

type memVolume struct {
	sizeGB  int64
	data    string
	mounted bool
	mounts  int
}

type memSnapshot struct {
	of     bourse.VolumeID
	sizeGB int64
	data   string
}

const memChunk = 4 // bytes

func newMemVolumes() *memVolumes {
	return &memVolumes{
		labels:  map[string]string{labelVolume: "memory"},
		volumes: map[bourse.VolumeID]*memVolume{}, snaps: map[bourse.SnapshotID]memSnapshot{},
		filling: map[bourse.VolumeID]map[int]string{}, forks: map[string]memSnapshot{}, busy: map[string]int{},
		scratch: map[bourse.MachineID]int64{},
	}
}

// call is one operation on a thing: nobody else may be at it.
func (f *memVolumes) call(ctx context.Context, name, id string, fn func() error) error {
	f.mu.Lock()
	fault := f.fault
	f.busy[id]++
	alone := f.busy[id] == 1 || name == "Usage" || name == "Manifest" || name == "Chunk"
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy[id]--
	}()
	if !alone && strings.HasPrefix(id, "vol_") && name != "Mount" && name != "Unmount" {
		return bourse.Errorf(bourse.CodeInternal, "%s of %s while something else is done to it", name, id)
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

func (f *memVolumes) get(id bourse.VolumeID) (*memVolume, error) {
	v := f.volumes[id]
	if v == nil {
		return nil, bourse.Errorf(bourse.CodeNotFound, "%s is not on this host", id)
	}
	return v, nil
}

func (f *memVolumes) Labels() map[string]string { return f.labels }

func (f *memVolumes) Create(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder) error {
	return f.call(ctx, "Create", string(id), func() error {
		if f.volumes[id] == nil {
			f.volumes[id] = &memVolume{sizeGB: spec.SizeGB}
		}
		return nil
	})
}

func (f *memVolumes) Mount(ctx context.Context, id bourse.VolumeID) (path string, err error) {
	return "/volumes/" + string(id), f.call(ctx, "Mount", string(id), func() error {
		v, err := f.get(id)
		if err == nil && !v.mounted {
			v.mounted = true
			v.mounts++
		}
		return err
	})
}

func (f *memVolumes) Unmount(ctx context.Context, id bourse.VolumeID) error {
	return f.call(ctx, "Unmount", string(id), func() error {
		v, err := f.get(id)
		if err == nil {
			v.mounted = false
		}
		return err
	})
}

func (f *memVolumes) ExtendsLive() bool { return true }

func (f *memVolumes) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) error {
	return f.call(ctx, "Extend", string(id), func() error {
		v, err := f.get(id)
		if err == nil {
			v.sizeGB = max(v.sizeGB, sizeGB)
		}
		return err
	})
}

func (f *memVolumes) Destroy(ctx context.Context, id bourse.VolumeID) error {
	return f.call(ctx, "Destroy", string(id), func() error {
		if v := f.volumes[id]; v != nil && v.mounted {
			return bourse.Errorf(bourse.CodeInternal, "destroy %s, which is mounted", id)
		}
		delete(f.volumes, id)
		delete(f.filling, id)
		return nil
	})
}

func (f *memVolumes) Usage(ctx context.Context, id bourse.VolumeID) (u bourse.VolumeUsage, err error) {
	return u, f.call(ctx, "Usage", string(id), func() error {
		v, err := f.get(id)
		if err == nil {
			total := v.sizeGB << 18
			free := total - int64(len(v.data)) // a letter stands for a block
			u = bourse.VolumeUsage{BlockSize: 4096, Blocks: total, BlocksFree: free, BlocksAvail: free}
		}
		return err
	})
}

func (f *memVolumes) Snapshot(ctx context.Context, id bourse.VolumeID, snap bourse.SnapshotID) (i volume.Info, err error) {
	return i, f.call(ctx, "Snapshot", string(id), func() error {
		s, ok := f.snaps[snap]
		if !ok {
			v, err := f.get(id)
			if err != nil {
				return err
			}
			s = memSnapshot{id, v.sizeGB, v.data}
			f.snaps[snap] = s
		}
		i = volume.Info{Bytes: int64(len(s.data)) * 4096, Digest: digestOf(s.data), SizeGB: s.sizeGB}
		return nil
	})
}

func (f *memVolumes) RemoveSnapshot(ctx context.Context, snap bourse.SnapshotID) error {
	return f.call(ctx, "RemoveSnapshot", string(snap), func() error { delete(f.snaps, snap); return nil })
}

func digestOf(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (f *memVolumes) Manifest(ctx context.Context, id string) (m volume.Manifest, err error) {
	return m, f.call(ctx, "Manifest", id, func() error {
		s, ok := f.snaps[bourse.SnapshotID(id)]
		m.ID = id
		if !ok {
			v, err := f.get(bourse.VolumeID(id))
			if err != nil {
				return err
			}
			s = memSnapshot{bourse.VolumeID(id), v.sizeGB, v.data}
			f.forked++
			m.ID = fmt.Sprintf("fork of %s %d", id, f.forked)
			f.forks[m.ID] = s
		}
		m.Volume, m.Bytes, m.Digest = s.of, s.sizeGB<<30, digestOf(s.data)
		for n, c := range chunksOf(s.data) {
			m.Chunks = append(m.Chunks, volume.Chunk{N: n, Digest: digestOf(c)})
		}
		return nil
	})
}

func chunksOf(s string) []string {
	var out []string
	for c := range slices.Chunk([]byte(s), memChunk) {
		out = append(out, string(c))
	}
	return out
}

func (f *memVolumes) Chunk(ctx context.Context, id string, n int, w io.Writer) error {
	var data []byte
	err := f.call(ctx, "Chunk", id, func() error {
		s, ok := f.forks[id]
		if !ok {
			s, ok = f.snaps[bourse.SnapshotID(id)]
		}
		list := chunksOf(s.data)
		if !ok || n < 0 || n >= len(list) {
			return bourse.Errorf(bourse.CodeNotFound, "no chunk %d of %s", n, id)
		}
		data = []byte(list[n])
		return nil
	})
	if err == nil {
		_, err = w.Write(data)
	}
	return err
}

func (f *memVolumes) Release(ctx context.Context, id string) error {
	return f.call(ctx, "Release", id, func() error { delete(f.forks, id); return nil })
}

func (f *memVolumes) Fill(ctx context.Context, id bourse.VolumeID, spec bourse.VolumeOrder, src volume.Source) error {
	return f.call(ctx, "Fill", string(id), func() error {
		if f.volumes[id] != nil {
			return nil
		}
		if f.filling[id] == nil {
			f.filling[id] = map[int]string{}
		}
		have := f.filling[id]
		f.mu.Unlock() // a source may be slow, and may be this host
		data, err := fetchAll(ctx, spec, src, have, func() { f.mu.Lock(); f.fetched++; f.mu.Unlock() })
		if l, ok := src.(*hostSource); ok && l.release != nil {
			_ = l.release(ctx, l.latest)
		}
		f.mu.Lock()
		if err == nil {
			f.volumes[id] = &memVolume{sizeGB: spec.SizeGB, data: data}
			delete(f.filling, id)
		}
		return err
	})
}

func fetchAll(ctx context.Context, spec bourse.VolumeOrder, src volume.Source, have map[int]string, fetched func()) (string, error) {
	m, err := src.Manifest(ctx)
	if err != nil {
		return "", err
	}
	if m.Bytes > spec.SizeGB<<30 {
		return "", bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: the source has %d bytes", spec.SizeGB, m.Bytes)
	}
	var data strings.Builder
	for _, c := range m.Chunks {
		if digestOf(have[c.N]) != c.Digest {
			body, err := src.Chunk(ctx, c.N, c.Digest)
			if err != nil {
				return "", err
			}
			b, err := io.ReadAll(body)
			_ = body.Close()
			if err != nil || digestOf(string(b)) != c.Digest {
				return "", bourse.Errorf(bourse.CodeUnavailable, "chunk %d is not what was promised: %v", c.N, err)
			}
			have[c.N] = string(b)
			fetched()
		}
		data.WriteString(have[c.N])
	}
	return data.String(), nil
}

func (f *memVolumes) Local(id string) volume.Source {
	return &hostSource{id: id, manifest: f.Manifest, chunk: f.Chunk, release: f.Release}
}

func (f *memVolumes) Recover(ctx context.Context, keep func(string) bool) error {
	return f.call(ctx, "Recover", "", func() error {
		maps.DeleteFunc(f.volumes, func(id bourse.VolumeID, _ *memVolume) bool { return !keep(string(id)) })
		maps.DeleteFunc(f.filling, func(id bourse.VolumeID, _ map[int]string) bool { return !keep(string(id)) })
		maps.DeleteFunc(f.snaps, func(id bourse.SnapshotID, _ memSnapshot) bool { return !keep(string(id)) })
		maps.DeleteFunc(f.scratch, func(id bourse.MachineID, _ int64) bool { return !keep(string(id)) })
		clear(f.forks)
		return nil
	})
}

// write changes a volume's data, as its machine would.
func (f *memVolumes) write(id bourse.VolumeID, data string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.volumes[id].data = data
}

// read gives a volume's data; ok is false when the host does not have it.
func (f *memVolumes) read(id bourse.VolumeID) (v memVolume, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.volumes[id]; x != nil {
		return *x, true
	}
	return v, false
}

// kept counts snapshots and copies for others.
func (f *memVolumes) kept() (snapshots, forks int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.snaps), len(f.forks)
}

func (f *memVolumes) setFault(fault func(call, id string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fault = fault
}

// left lists the ids of all that the host has, and what is mounted.
func (f *memVolumes) left() (things []string, mounted []bourse.VolumeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, v := range f.volumes {
		things = append(things, string(id))
		if v.mounted {
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

var (
	_ Volumes = (*memVolumes)(nil)
	_ Peers   = (*memPeers)(nil)
	_ Volumes = noVolumes{}
	_ Volumes = (*volume.Store)(nil)
)
