package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

const poem = "the quick brown fox jumps over the lazy dog"

// volumeDiary records what callers were told about volumes before a crash.
type volumeDiary struct {
	data      map[bourse.VolumeID]string // contents of the volumes that were created
	sizes     map[bourse.VolumeID]int64
	snapshots map[bourse.SnapshotID]bourse.VolumeID
	destroyed map[bourse.VolumeID]bool
}

func newVolumeDiary() *volumeDiary {
	return &volumeDiary{map[bourse.VolumeID]string{}, map[bourse.VolumeID]int64{}, map[bourse.SnapshotID]bourse.VolumeID{}, map[bourse.VolumeID]bool{}}
}

// volumeLife runs a scenario that uses every operation on volumes. It stops at the
// first error, like a caller whose worker has died.
func (h *host) volumeLife(d *volumeDiary, vols *volumetest.Host) error {
	ctx, cancel := context.WithTimeout(h.t.Context(), 10*time.Second) // a caller gives up on a dead worker after this time
	defer cancel()
	place := func(change ...func(*bourse.VolumeOrder)) (bourse.Volume, error) {
		fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *newVolumeOrder(h.t, change...)})
		if refusal != nil {
			err = errors.New(refusal.Detail)
		}
		if err != nil {
			return bourse.Volume{}, err
		}
		v, err := h.volumes.Await(ctx, fill.Volume.ID, func(v *bourse.Volume) bool { return v.State == bourse.VolumeCreated })
		if err == nil {
			mem, _ := vols.Read(v.ID)
			d.data[v.ID], d.sizes[v.ID] = mem.Data, v.Spec.SizeGB
		}
		return v, err
	}
	var base, fork, restored bourse.Volume
	var snap bourse.Snapshot
	var m bourse.Machine
	for _, step := range []func() (err error){
		func() (err error) { base, err = place(); return err },
		func() error {
			fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *newOrder(h.t, mounts(base.ID))})
			if refusal != nil {
				err = errors.New(refusal.Detail)
			}
			if err == nil {
				m = fill.Machine
				vols.Write(base.ID, poem)
				d.data[base.ID] = poem
			}
			return err
		},
		func() error {
			v, err := h.volumes.Extend(ctx, base.ID, 12)
			if err == nil {
				d.sizes[base.ID] = v.Spec.SizeGB
			}
			return err
		},
		func() (err error) {
			if snap, err = h.volumes.Snapshot(ctx, base.ID); err == nil {
				d.snapshots[snap.ID] = base.ID
			}
			return err
		},
		func() (err error) {
			fork, err = place(func(o *bourse.VolumeOrder) { o.Source, o.SizeGB = base.ID, 13 })
			return err
		},
		func() (err error) {
			restored, err = place(func(o *bourse.VolumeOrder) { o.Snapshot, o.SizeGB = snap.ID, 12 })
			return err
		},
		func() error { _, err := h.machines.Destroy(ctx, m.ID, fabric.MachineAction{Force: true}); return err },
		func() error { _, err := h.cancel(ctx, restored.Order); return d.goes(restored.ID, err) },
		func() error { _, err := h.volumes.Destroy(ctx, base.ID); return d.goes(base.ID, err) },
		func() error {
			_, err := h.volumes.Change(ctx, fork.ID, fabric.VolumeChange{RetentionDays: new(1)})
			return err
		},
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// goes records that a volume was destroyed. If err is not nil, it is unknown whether the volume was destroyed.
func (d *volumeDiary) goes(id bourse.VolumeID, err error) error {
	delete(d.data, id)
	delete(d.sizes, id)
	d.destroyed[id] = err == nil
	return err
}

// Invariant 5 for volumes: the daemon dies before and after every commit of a scenario
// that uses every operation on volumes. After each death and restart, the host contains
// nothing without a record, everything that callers were told is still true, no data is
// lost, and all operations are finished.
func TestInvariant5VolumesIntentBeforeEffect(t *testing.T) {
	var commits uint64
	synctest.Test(t, func(t *testing.T) {
		vols := volumetest.NewHost()
		h := newHostDown(t, withVolumes(vols))
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		if err := h.volumeLife(newVolumeDiary(), vols); err != nil {
			t.Fatalf("the scenario fails even without a crash: %v", err)
		}
		h.crash()
	})
	t.Logf("%d commits", commits)
	if commits < 20 {
		t.Fatalf("the scenario makes only %d commits", commits)
	}
	for n := uint64(2); n <= commits; n++ { // the first commit creates the store
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					vols := volumetest.NewHost()
					h := newHostDown(t, withVolumes(vols))
					defer func() { h.crash() }()
					d := newVolumeDiary()
					if h.tryStart(crashAt(stage, n)) == nil {
						_ = h.volumeLife(d, vols) // the crash ends the scenario early
						h.crash()
					}
					h.start(nil)
					h.checkVolumes(d, vols)
				})
			})
		}
	}
}

func (h *host) checkVolumes(d *volumeDiary, vols *volumetest.Host) {
	h.t.Helper()
	time.Sleep(10 * time.Minute) // virtual time: by now, every backoff and run has ended
	all, err := h.volumes.List(h.t.Context(), nil, func(*bourse.Volume) bool { return true })
	if err != nil {
		h.t.Fatal(err)
	}
	records, want, attached := map[bourse.VolumeID]bourse.Volume{}, map[string]bool{}, map[bourse.VolumeID]bool{}
	for _, v := range all {
		records[v.ID] = v
		if v.State != bourse.VolumeCreated && v.State != bourse.VolumeDestroyed {
			h.t.Errorf("volume %s is %s forever (%s)", v.ID, v.State, v.Error)
		}
		if v.State == bourse.VolumeCreated {
			want[string(v.ID)] = true
		}
		if v.Machine != "" {
			attached[v.ID] = true
			if m := h.get(v.Machine); m.State == bourse.StateDestroyed || len(m.Config.Mounts) != 1 || m.Config.Mounts[0].Volume != v.ID {
				h.t.Errorf("volume %s belongs to machine %s, which is %s and mounts %v", v.ID, m.ID, m.State, m.Config.Mounts)
			}
		}
		for _, s := range v.Snapshots {
			want[string(s.ID)] = s.State == bourse.SnapshotCreated
			if s.State != bourse.SnapshotCreated {
				h.t.Errorf("snapshot %s is %s forever", s.ID, s.State)
			}
		}
	}
	left, mounted := vols.Left()
	slices.Sort(left)
	if wanted := slices.Sorted(maps.Keys(want)); !slices.Equal(left, wanted) {
		h.t.Errorf("the host has %v, the records contain %v", left, wanted)
	}
	for _, id := range mounted {
		if !attached[id] {
			h.t.Errorf("volume %s is mounted but has no machine", id)
		}
	}
	for id, data := range d.data {
		if mem, ok := vols.Read(id); !ok || mem.Data != data || mem.SizeGB < d.sizes[id] || records[id].Spec.SizeGB < d.sizes[id] {
			h.t.Errorf("volume %s was reported to have %q in %d GB, the host has %+v", id, data, d.sizes[id], mem)
		}
		if mem, _ := vols.Read(id); mem.SizeGB != records[id].Spec.SizeGB {
			h.t.Errorf("volume %s has %d GB, its record has %d", id, mem.SizeGB, records[id].Spec.SizeGB)
		}
	}
	for id, volume := range d.snapshots {
		if !slices.ContainsFunc(records[volume].Snapshots, func(s bourse.Snapshot) bool { return s.ID == id }) {
			h.t.Errorf("snapshot %s was reported but does not exist", id)
		}
	}
	for id, reported := range d.destroyed {
		if state := records[id].State; reported && state != bourse.VolumeDestroyed {
			h.t.Errorf("volume %s was reported as destroyed and is %s", id, state)
		}
	}
	if runs, err := h.listRuns(false); err != nil || len(runs) != 0 {
		h.t.Errorf("unfinished runs: %+v, %v", runs, err)
	}
	h.verify()
}
