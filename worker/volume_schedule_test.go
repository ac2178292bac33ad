package worker

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// destroying is what a daemon leaves that dies right after the intent: a volume
// to be destroyed, by nobody.
func destroying(id bourse.VolumeID) func(*store.Tx) error {
	return func(tx *store.Tx) error {
		_, err := changeVolume(tx, id, "destroy", func(v *bourse.Volume) (bool, error) {
			v.State = bourse.VolumeDestroying
			return true, nil
		})
		return err
	}
}

func TestVolumeChores(t *testing.T) {
	born := time.Unix(1e9, 0)
	at := func(d time.Duration) time.Time { return born.Add(d) }
	snap := func(age time.Duration, state bourse.SnapshotState, scheduled bool) bourse.Snapshot {
		return bourse.Snapshot{ID: "s", State: state, Scheduled: scheduled, RetentionDays: 2, CreatedAt: at(age)}
	}
	const made, failed, going = bourse.SnapshotCreated, bourse.SnapshotFailed, bourse.SnapshotCreating
	for name, c := range map[string]struct {
		now     time.Duration
		snaps   []bourse.Snapshot
		off     bool
		state   bourse.VolumeState
		expires int
		due     bool
	}{
		"young":                        {now: day - 1},
		"a day old":                    {now: day, due: true},
		"not wanted":                   {now: day, off: true},
		"not usable":                   {now: day, state: bourse.VolumeDestroyed},
		"growing":                      {now: day, state: bourse.VolumeExtending, due: true},
		"taken yesterday":              {now: 2*day - 1, snaps: []bourse.Snapshot{snap(day, made, true)}},
		"taken a day ago":              {now: 2 * day, snaps: []bourse.Snapshot{snap(day, made, true)}, due: true},
		"missed for a week":            {now: 8 * day, snaps: []bourse.Snapshot{snap(day, made, true)}, due: true, expires: 1},
		"a person's does not count":    {now: day, snaps: []bourse.Snapshot{snap(day-1, made, false)}, due: true},
		"one is being taken":           {now: 9 * day, snaps: []bourse.Snapshot{snap(0, going, false)}},
		"failed a moment ago":          {now: day + 1, snaps: []bourse.Snapshot{snap(day, failed, true)}},
		"failed an hour ago":           {now: day + time.Hour, snaps: []bourse.Snapshot{snap(day, failed, true)}, due: true},
		"kept as long as promised":     {now: 2*day - 1, snaps: []bourse.Snapshot{snap(0, made, false)}, off: true},
		"not longer":                   {now: 2 * day, snaps: []bourse.Snapshot{snap(0, made, false)}, off: true, expires: 1},
		"also of a destroyed volume":   {now: 2 * day, snaps: []bourse.Snapshot{snap(0, made, true)}, state: bourse.VolumeDestroyed, expires: 1},
		"a failed one is seen as long": {now: 2 * day, snaps: []bourse.Snapshot{snap(0, failed, false), snap(day, failed, false)}, off: true, expires: 1},
	} {
		v := bourse.Volume{State: bourse.VolumeCreated, CreatedAt: born, Snapshots: c.snaps, Spec: bourse.VolumeOrder{ScheduledSnaps: !c.off}}
		if c.state != "" {
			v.State = c.state
		}
		expire, due := volumeChores(&v, at(c.now))
		if len(expire) != c.expires || due != c.due {
			t.Errorf("%s: %d expire, snapshot due %t; want %d, %t", name, len(expire), due, c.expires, c.due)
		}
	}
}

// A snapshot a day, kept for its days, whatever happens to the daemon: none is
// lost and none is taken twice.
func TestScheduledSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer func() { h.crash() }()
		v := h.placeVolume(func(v *bourse.VolumeOrder) { v.ScheduledSnaps, v.RetentionDays = true, 3 })
		taken := func(want int, when string) {
			t.Helper()
			got := h.getVolume(v.ID).Snapshots
			for i, s := range got {
				if s.State != bourse.SnapshotCreated || !s.Scheduled || i > 0 && s.CreatedAt.Sub(got[i-1].CreatedAt) < day {
					t.Errorf("%s: snapshot %+v after %+v", when, s, got[max(0, i-1)])
				}
			}
			if kept, _ := vols.kept(); len(got) != want || kept != want {
				t.Errorf("%s: %d snapshots, %d on the host; want %d", when, len(got), kept, want)
			}
		}
		time.Sleep(23 * time.Hour)
		taken(0, "before the first day is over")
		for range 3 { // around the time that it is due
			h.crash()
			h.start(nil)
			time.Sleep(30 * time.Minute)
		}
		taken(1, "after the first day")
		time.Sleep(time.Minute)
		h.crash()
		time.Sleep(36 * time.Hour)
		h.start(nil)
		time.Sleep(2 * time.Minute)
		taken(2, "after a night without the daemon")
		time.Sleep(5 * day)
		taken(3, "in the long run")
		if _, err := h.destroyVolume(t.Context(), v.ID); err != nil {
			t.Fatal(err)
		}
		taken(3, "after the volume")
		time.Sleep(4 * day)
		if _, err := h.volume(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("the record after its last snapshot: %v, want it forgotten", err)
		}
		if left, _ := vols.left(); len(left) != 0 || h.usedDisk() != 0 {
			t.Errorf("the host has %v, %d MiB taken", left, h.usedDisk())
		}
		h.verify()
	})
}

// One snapshot of a volume at a time, and none without room; a failed one
// takes nothing and is seen.
func TestSnapshotsSayNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer h.crash()
		v := h.placeVolume()
		vols.write(v.ID, poem)
		hold := make(chan struct{})
		vols.setFault(func(call, _ string) error {
			if call == "Snapshot" {
				<-hold
			}
			return nil
		})
		go func() { _, _ = h.snapshot(t.Context(), v.ID) }()
		synctest.Wait()
		if _, err := h.snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || err.Error()[:len("snapshot is already scheduled at ")] != "snapshot is already scheduled at " {
			t.Errorf("a second one: %v, want failed_precondition", err)
		}
		close(hold)
		synctest.Wait()
		if err := h.store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := h.getVolume(v.ID).Snapshots
		if len(first) != 1 || first[0].State != bourse.SnapshotCreated {
			t.Fatalf("snapshots %+v, want the first one", first)
		}
		used := h.usedDisk()

		vols.setFault(func(call, _ string) error {
			if call == "Snapshot" {
				return bourse.Errorf(bourse.CodeInsufficient, "the disk of the host is full")
			}
			return nil
		})
		if _, err := h.snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("on a full disk: %v", err)
		}
		if got := h.getVolume(v.ID).Snapshots; len(got) != 2 || got[1].State != bourse.SnapshotFailed || h.usedDisk() != used {
			t.Errorf("afterwards %+v, %d MiB taken; want it seen as failed and %d", got, h.usedDisk(), used)
		}

		h.placeVolume(func(v *bourse.VolumeOrder) { v.SizeGB = 89 })
		vols.setFault(func(call, _ string) error {
			if call == "Snapshot" { // after its room was taken
				vols.mu.Lock()
				defer vols.mu.Unlock()
				vols.volumes[v.ID].data = string(make([]byte, 1<<19)) // 2 GiB
			}
			return nil
		})
		if _, err := h.snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("of more than there is room for: %v", err)
		}
		if kept, _ := vols.kept(); kept != 1 || h.usedDisk() != used+89<<10 {
			t.Errorf("the host has %d snapshots, %d MiB are taken; want 1, %d", kept, h.usedDisk(), used+89<<10)
		}
		vols.setFault(nil)
		if _, err := h.snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("without room: %v", err)
		}
		h.verify()
	})
}

// A snapshot that somebody reads outlives its time.
func TestASnapshotInUseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer func() { h.crash() }()
		v := h.placeVolume(func(v *bourse.VolumeOrder) { v.RetentionDays = 1 })
		vols.write(v.ID, poem)
		s, err := h.snapshot(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(day - time.Minute)
		if _, err := h.manifest(t.Context(), string(s.ID)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if kept, _ := vols.kept(); kept != 1 {
			t.Error("removed while it was read")
		}
		if err := h.chunk(t.Context(), string(s.ID), 1, io.Discard); err != nil {
			t.Errorf("the next chunk: %v", err)
		}
		time.Sleep(10*time.Minute - time.Second)
		h.crash()
		h.start(nil)
		if _, err := h.manifest(t.Context(), string(s.ID)); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("a new reading after its time: %v, want not_found", err)
		}
		time.Sleep(2 * time.Minute)
		if kept, _ := vols.kept(); kept != 0 || len(h.getVolume(v.ID).Snapshots) != 0 {
			t.Error("still there")
		}
	})
}

// A volume whose run an operator has skipped is taken up after a restart.
func TestRecoveryFinishesVolumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, vols := newVolumeHost(t)
		defer func() { h.crash() }()
		grows, goes, kept := h.placeVolume(), h.placeVolume(), h.placeVolume()
		m := h.place(mounts(kept.ID))
		snap := bourse.NewSnapshotID(h.self.Tag)
		for id, change := range map[bourse.VolumeID]func(*bourse.Volume){
			grows.ID: func(v *bourse.Volume) { v.State, v.GrowsTo = bourse.VolumeExtending, 12 },
			goes.ID:  func(v *bourse.Volume) { v.State = bourse.VolumeDestroying },
			kept.ID: func(v *bourse.Volume) {
				v.Snapshots = []bourse.Snapshot{{ID: snap, Volume: v.ID, State: bourse.SnapshotCreating}}
			},
		} {
			if err := h.store.Update(t.Context(), func(tx *store.Tx) error {
				_, err := changeVolume(tx, id, "test", func(v *bourse.Volume) (bool, error) {
					change(v)
					v.Takes = volumeTakes(v)
					return true, nil
				})
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		h.crash()
		stray := bourse.NewVolumeID(9)
		vols.volumes[stray] = &memVolume{}
		before := h.setup
		h.setup = func(c *Config) { before(c); c.Forget = true }
		vols.snaps[bourse.NewSnapshotID(9)] = memSnapshot{}
		h.start(nil)
		if v := h.volumeReaches(grows.ID, bourse.VolumeCreated); v.Spec.SizeGB != 12 {
			t.Errorf("grew to %d GB, want 12", v.Spec.SizeGB)
		}
		h.volumeReaches(goes.ID, bourse.VolumeDestroyed)
		v, err := h.awaitVolume(t.Context(), kept.ID, func(v *bourse.Volume) bool { return v.Snapshots[0].State == bourse.SnapshotCreated })
		if err != nil || v.Machine != m.ID {
			t.Errorf("the third: %+v, %v", v, err)
		}
		if mem, _ := vols.read(kept.ID); !mem.mounted || mem.mounts != 1 {
			t.Errorf("of a running machine: %+v, want it mounted all the time", mem)
		}
		if left, _ := vols.left(); len(left) != 3 {
			t.Errorf("the host has %v, want two volumes and a snapshot", left)
		}
		h.must(h.destroy(t.Context(), m.ID, fabric.Act{Force: true}))
		h.verify()
	})
}
