package worker

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/volumes"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// openVolumes opens a real volume store, or skips the test if the host does not support
// volumes.
func openVolumes(t *testing.T) (*volume.Store, string) {
	t.Helper()
	dir := t.TempDir()
	vols, err := volume.Open(volume.Config{Dir: dir, Log: testLog(t)})
	if bourse.CodeOf(err) == bourse.CodeUnavailable {
		t.Skipf("this host does not support volumes: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return vols, dir
}

// Two workers use real file systems. A fork of a volume in use, made on another worker, contains what the machine has
// written, and so does a volume restored from a snapshot. At the end, nothing is left behind.
func TestVolumesOnARealHost(t *testing.T) {
	hosts := map[bourse.WorkerTag]*host{}
	peers := &volumetest.Peers{Find: func(tag bourse.WorkerTag) *volumes.Volumes {
		if h := hosts[tag]; h != nil && h.Worker != nil {
			return h.volumes
		}
		return nil
	}}
	start := func(id bourse.WorkerID, tag bourse.WorkerTag) (*host, string) {
		vols, dir := openVolumes(t)
		h := newHost(t, func(c *Config) {
			c.ID, c.Volumes, c.Peers, c.Capacity.Disk, c.Tag = id, vols, peers, 10<<10, func() bourse.WorkerTag { return tag }
		})
		hosts[tag] = h
		return h, dir
	}
	near, nearDir := start("near", 1)
	far, farDir := start("far", 2)
	ctx := t.Context()
	one := func(v *bourse.VolumeOrder) { v.SizeGB = 1 }

	src := far.placeVolume(one)
	m := far.place(mounts(src.ID))
	path := func(dir string, id bourse.VolumeID) string {
		return filepath.Join(dir, string(id), "mnt", "poem")
	}
	if err := os.WriteFile(path(farDir, src.ID), []byte(poem), 0o600); err != nil {
		t.Fatal(err)
	}
	snap, err := far.volumes.Snapshot(ctx, src.ID)
	if err != nil {
		t.Fatal(err)
	}
	v, err := far.volumes.Extend(ctx, src.ID, 2)
	image, errImage := os.Stat(filepath.Join(farDir, string(src.ID), "image"))
	if err != nil || errImage != nil || v.Spec.SizeGB != 2 || image.Size() != 2<<30 {
		t.Errorf("extended while it is in use: %+v, %v, %v; want 2 GB", v.Spec, err, errImage)
	}
	loud := strings.ToUpper(poem)
	if err := os.WriteFile(path(farDir, src.ID), []byte(loud), 0o600); err != nil {
		t.Fatal(err)
	}
	far.crash() // the volume stays mounted while the daemon restarts
	far.start(nil)
	hosts[2] = far

	fork := near.placeVolume(func(v *bourse.VolumeOrder) { v.Source, v.SizeGB = src.ID, 2 })
	restored := near.placeVolume(func(v *bourse.VolumeOrder) { v.Snapshot, v.SizeGB = snap.ID, 1 })
	for id, want := range map[bourse.VolumeID]string{fork.ID: loud, restored.ID: poem} {
		near.volumeReaches(id, bourse.VolumeCreated)
		machine := near.place(mounts(id))
		got, err := os.ReadFile(path(nearDir, id))
		if err != nil || string(got) != want {
			t.Errorf("volume %s has %q (%v), want %q", id, got, err, want)
		}
		near.must(near.machines.Destroy(ctx, machine.ID, fabric.MachineAction{Force: true}))
	}
	far.must(far.machines.Destroy(ctx, m.ID, fabric.MachineAction{Force: true}))
	for _, h := range []*host{near, far} {
		if err := h.DestroyAll(ctx); err != nil {
			t.Error(err)
		}
		h.verify()
	}
	for _, dir := range []string{nearDir, farDir} {
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if diff := cmp.Diff([]string(nil), left); err != nil || diff != "" {
			t.Errorf("left on the host (%v):\n%s", err, diff)
		}
	}
}
