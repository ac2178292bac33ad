package store

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func volumeID(n int) bourse.VolumeID     { return bourse.VolumeID(fmt.Sprintf("vol_%016d", n)) }
func snapshotID(n int) bourse.SnapshotID { return bourse.SnapshotID(fmt.Sprintf("vs_%016d", n)) }

func diskTakes(n int64) bourse.Amounts { return bourse.Amounts{{Resource: "disk", Amount: n}} }

func aVolume(n int, state bourse.VolumeState) *bourse.Volume {
	at := time.Unix(1e9, 0).UTC()
	return &bourse.Volume{
		ID: volumeID(n), App: "app", Worker: "w1", Region: "gru", Order: "o", State: state,
		Spec: bourse.VolumeOrder{Name: "data", SizeGB: 1}, Takes: diskTakes(1024), CreatedAt: at, UpdatedAt: at,
	}
}

func drawVolume(t *rapid.T) bourse.Volume {
	states := []bourse.VolumeState{
		bourse.VolumeCreating, bourse.VolumeRestoring, bourse.VolumeHydrating, bourse.VolumeCreated,
		bourse.VolumeExtending, bourse.VolumeFailed, bourse.VolumeDestroying, bourse.VolumeDestroyed,
	}
	v := *aVolume(rapid.IntRange(0, 3).Draw(t, "id"), rapid.SampledFrom(states).Draw(t, "state"))
	v.App = rapid.SampledFrom([]bourse.AppName{"app", "app-2"}).Draw(t, "app")
	v.AppID = rapid.SampledFrom(modelIDs(v.App)[:2]).Draw(t, "app's id")
	v.Takes = diskTakes(rapid.Int64Range(0, 3).Draw(t, "takes"))
	v.UpdatedAt = time.Unix(rapid.Int64Range(-5, 5).Draw(t, "at"), 0).UTC()
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(0, 5), 0, 2, rapid.ID).Draw(t, "snapshots") {
		v.Snapshots = append(v.Snapshots, bourse.Snapshot{ID: snapshotID(n), Volume: v.ID})
	}
	return v
}

// volumeModel models a store of volumes as a map.
type volumeModel map[bourse.VolumeID]bourse.Volume

// put applies PutVolume to the model, and returns the expected error code.
func (m volumeModel) put(v bourse.Volume) bourse.Code {
	old := m[v.ID]
	if old.State != v.State && !old.State.CanBecome(v.State) {
		return bourse.CodeInternal
	}
	for _, s := range v.Snapshots {
		for _, other := range m {
			if other.ID != v.ID && slices.ContainsFunc(other.Snapshots, func(x bourse.Snapshot) bool { return x.ID == s.ID }) {
				return bourse.CodeAlreadyExists
			}
		}
	}
	m[v.ID] = v
	return ""
}

func (m volumeModel) delete(id bourse.VolumeID) bourse.Code {
	switch v, ok := m[id]; {
	case !ok:
		return bourse.CodeNotFound
	case v.State != bourse.VolumeDestroyed || len(v.Snapshots) > 0:
		return bourse.CodeFailedPrecondition
	}
	delete(m, id)
	return ""
}

// compare returns an error if tx differs from the model.
func (m volumeModel) compare(tx *Tx) error {
	got, sum := volumeModel{}, int64(0)
	for v, err := range tx.Volumes() {
		if err != nil {
			return err
		}
		got[v.ID] = v
	}
	if diff := cmp.Diff(m, got); diff != "" {
		return fmt.Errorf("volumes (-want +got):\n%s", diff)
	}
	for _, v := range m {
		sum += v.Takes.Of("disk")
		for _, s := range v.Snapshots {
			if found, of, err := tx.Snapshot(s.ID); err != nil || found.ID != s.ID || of.ID != v.ID {
				return fmt.Errorf("snapshot %s: %+v of volume %s, %w; want volume %s", s.ID, found, of.ID, err, v.ID)
			}
		}
	}
	if committed, err := tx.Committed(); err != nil || committed.Of("disk") != sum {
		return fmt.Errorf("committed %v, %w; want %d of disk", committed, err, sum)
	}
	apps := []bourse.App{{Name: "app"}, {Name: "app-2"}}
	for _, a := range apps[:2] { // created after all records, so these apps do not own the records without an app ID
		apps = append(apps, bourse.App{Name: a.Name, ID: modelIDs(a.Name)[1], Generation: 1, CreatedAt: time.Unix(1<<40, 0)})
	}
	for _, app := range apps {
		var list []bourse.VolumeID
		for v, err := range tx.VolumesOf(app) {
			if err != nil || v.App != app.Name {
				return fmt.Errorf("volume %s of %s: %w", v.ID, v.App, err)
			}
			list = append(list, v.ID)
		}
		var want []bourse.VolumeID
		for _, id := range slices.Sorted(maps.Keys(m)) {
			if m[id].App == app.Name && m[id].AppID == app.ID {
				want = append(want, id)
			}
		}
		if !slices.Equal(list, want) {
			return fmt.Errorf("volumes of %v: %v, want %v", app.Ref(), list, want)
		}
	}
	return tx.Verify()
}

// TestVolumeModel compares a store of volumes with the model after random transactions.
func TestVolumeModel(t *testing.T) {
	t.Parallel()
	s := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		empty(rt, s, bucketVolumes, bucketVolumeApp, bucketVolumeDestroyed, bucketSnapshots, bucketCommitted)
		m := volumeModel{}
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				v := drawVolume(rt)
				next := maps.Clone(m)
				want := next.put(v)
				if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutVolume(&v) }); bourse.CodeOf(err) != want {
					rt.Fatalf("put %s %s: %v, want code %q", v.ID, v.State, err, want)
				}
				m = next
			},
			"delete": func(rt *rapid.T) {
				id := volumeID(rapid.IntRange(0, 3).Draw(rt, "id"))
				want := m.delete(id)
				if err := s.Update(t.Context(), func(tx *Tx) error { return tx.DeleteVolume(id) }); bourse.CodeOf(err) != want {
					rt.Fatalf("delete %s: %v, want code %q", id, err, want)
				}
			},
			"": func(rt *rapid.T) {
				if err := s.View(m.compare); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

func TestVolumeRecordsAreChecked(t *testing.T) {
	s := open(t)
	for name, spoil := range map[string]func(*bourse.Volume){
		"id":              func(v *bourse.Volume) { v.ID = "vol_x" },
		"no id":           func(v *bourse.Volume) { v.ID = "" },
		"app":             func(v *bourse.Volume) { v.App = "a\x00b" },
		"takes":           func(v *bourse.Volume) { v.Takes = diskTakes(-1) },
		"takes too much":  func(v *bourse.Volume) { v.Takes = diskTakes(bourse.MaxAmount + 1) },
		"snapshot":        func(v *bourse.Volume) { v.Snapshots = []bourse.Snapshot{{ID: "vs_x"}} },
		"snapshots twice": func(v *bourse.Volume) { v.Snapshots = []bourse.Snapshot{{ID: snapshotID(1)}, {ID: snapshotID(1)}} },
		"state":           func(v *bourse.Volume) { v.State = "melting" },
	} {
		v := aVolume(1, bourse.VolumeCreating)
		spoil(v)
		if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutVolume(v) }); bourse.CodeOf(err) != bourse.CodeInternal {
			t.Errorf("%s: %v, want internal", name, err)
		}
	}
	used := aVolume(1, bourse.VolumeCreating)
	used.Usage = &bourse.VolumeUsage{Blocks: 1}
	update(t, s, func(tx *Tx) error { return tx.PutVolume(used) })
	view(t, s, func(tx *Tx) error {
		if v, err := tx.Volume(used.ID); err != nil || v.Usage != nil || used.Usage == nil {
			t.Errorf("usage %v (%v), want no usage in the record and the caller's volume unchanged", v.Usage, err)
		}
		for _, id := range []string{"", "a\x00b", "vol_"} {
			if _, err := tx.Volume(bourse.VolumeID(id)); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("volume %q: got %v, want not_found", id, err)
			}
			if _, _, err := tx.Snapshot(bourse.SnapshotID(id)); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("snapshot %q: got %v, want not_found", id, err)
			}
		}
		return tx.Verify()
	})
}

// TestPruneVolumes checks that a destroyed volume is retained for some time, and as long as it
// has a snapshot. Its order and log entries are deleted with it.
func TestPruneVolumes(t *testing.T) {
	s := open(t)
	now := time.Unix(1e9, 0)
	old := now.Add(-2 * DefaultKeep).UTC()
	life := []bourse.VolumeState{bourse.VolumeCreating, bourse.VolumeCreated, bourse.VolumeDestroying, bourse.VolumeDestroyed}
	for n, x := range []struct {
		at    time.Time
		lives int // number of states that the volume goes through
		snaps []bourse.Snapshot
	}{{old, 4, nil}, {old, 4, []bourse.Snapshot{{ID: snapshotID(1)}}}, {old, 2, nil}, {now.UTC(), 4, nil}} {
		for _, state := range life[:x.lives] {
			update(t, s, func(tx *Tx) error {
				v := aVolume(n, state)
				v.Order, v.UpdatedAt, v.Snapshots = bourse.OrderID(fmt.Sprint("o", n)), x.at, x.snaps
				if _, err := tx.Append(Entry{Kind: KindVolume, ID: string(v.ID), Event: bourse.Event{Type: "t", At: x.at}}); err != nil {
					return err
				}
				if err := tx.PutOrder(OrderRecord{ID: v.Order, Volume: v.ID, At: x.at}); err != nil {
					return err
				}
				return tx.PutVolume(v)
			})
		}
	}
	got, err := s.Prune(t.Context(), now)
	if want := (Pruned{Volumes: 1, Orders: 1}); err != nil || got != want {
		t.Errorf("pruned %+v (%v), want %+v", got, err, want)
	}
	view(t, s, func(tx *Tx) error {
		for n, want := range []int{0, 4, 2, 4} {
			log, err := tx.Entries(KindVolume, string(volumeID(n)), 0)
			_, order, errOrder := tx.Order(bourse.OrderID(fmt.Sprint("o", n)))
			if err != nil || errOrder != nil || len(log) != want || order != (want > 0) {
				t.Errorf("volume %d: %d log entries (%v), order %t (%v); want %d", n, len(log), err, order, errOrder, want)
			}
		}
		return tx.Verify()
	})
}
