package worker

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/volumes"
)

// An unfinished operation on a volume is finished after a restart, even if an operator
// has skipped its run.
func TestRecoveryFinishesVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer func() { h.crash() }()
		grows, goes, kept := h.placeVolume(), h.placeVolume(), h.placeVolume()
		m := h.place(mounts(kept.ID))
		snap := bourse.NewSnapshotID(h.self.Tag)
		for id, change := range map[bourse.VolumeID]func(*bourse.Volume){
			grows.ID: func(v *bourse.Volume) { v.State, v.TargetGB = bourse.VolumeExtending, 12 },
			goes.ID:  func(v *bourse.Volume) { v.State = bourse.VolumeDestroying },
			kept.ID: func(v *bourse.Volume) {
				v.Snapshots = []bourse.Snapshot{{ID: snap, Volume: v.ID, State: bourse.SnapshotCreating, RetentionDays: 1, CreatedAt: time.Now()}}
			},
		} {
			if err := h.store.Update(t.Context(), func(tx *store.Tx) error {
				v, err := tx.Volume(id)
				change(&v)
				v.Takes = volumes.Takes(&v)
				return errors.Join(err, tx.PutVolume(&v))
			}); err != nil {
				t.Fatal(err)
			}
		}
		h.crash()
		before := h.setup
		h.setup = func(c *Config) { before(c); c.Forget = true }
		vols.Stray(bourse.NewVolumeID(9), bourse.NewSnapshotID(9))
		h.start(nil)
		if v := h.volumeReaches(grows.ID, bourse.VolumeCreated); v.Spec.SizeGB != 12 {
			t.Errorf("grew to %d GB, want 12", v.Spec.SizeGB)
		}
		h.volumeReaches(goes.ID, bourse.VolumeDestroyed)
		v, err := h.volumes.Await(t.Context(), kept.ID, func(v *bourse.Volume) bool { return v.Snapshots[0].State == bourse.SnapshotCreated })
		if err != nil || v.Machine != m.ID {
			t.Errorf("the third volume: %+v, %v", v, err)
		}
		if mem, _ := vols.Read(kept.ID); !mem.Mounted || mem.Mounts != 1 {
			t.Errorf("a running machine's volume: %+v, want it mounted all the time", mem)
		}
		if left, _ := vols.Left(); len(left) != 3 {
			t.Errorf("the host has %v, want two volumes and a snapshot", left)
		}
		h.must(h.machines.Destroy(t.Context(), m.ID, fabric.MachineAction{Force: true}))
		h.verify()
	})
}
