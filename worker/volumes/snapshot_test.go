package volumes_test

import (
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/volume"
)

const (
	day  = 24 * time.Hour
	poem = "the quick brown fox jumps over the lazy dog"
)

// A snapshot is taken every day and kept for its retention time. Even if the daemon
// crashes or is down, no snapshot is lost or taken twice.
func TestScheduledSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, "w1", 1, nil)
		vols := h.vols
		defer h.crash()
		v := h.place(func(v *bourse.VolumeOrder) { v.ScheduledSnaps, v.RetentionDays = true, 3 })
		taken := func(want int, when string) {
			t.Helper()
			got := h.get(v.ID).Snapshots
			for i, s := range got {
				if s.State != bourse.SnapshotCreated || !s.Scheduled || i > 0 && s.CreatedAt.Sub(got[i-1].CreatedAt) < day {
					t.Errorf("%s: snapshot %+v after %+v", when, s, got[max(0, i-1)])
				}
			}
			if kept, _ := vols.Kept(); len(got) != want || kept != want {
				t.Errorf("%s: %d snapshots, %d on the host; want %d", when, len(got), kept, want)
			}
		}
		time.Sleep(23 * time.Hour)
		taken(0, "before the first day is over")
		for range 3 { // around the time when the snapshot is due
			h.crash()
			h.start()
			time.Sleep(30 * time.Minute)
		}
		taken(1, "after the first day")
		time.Sleep(time.Minute)
		h.crash()
		time.Sleep(36 * time.Hour)
		h.start()
		time.Sleep(2 * time.Minute)
		taken(2, "after a night without the daemon")
		time.Sleep(5 * day)
		taken(3, "in the long run")
		if _, err := h.Destroy(t.Context(), v.ID); err != nil {
			t.Fatal(err)
		}
		taken(3, "after the volume")
		time.Sleep(4 * day)
		if _, err := h.state.Store.Prune(t.Context(), time.Now()); err != nil {
			t.Fatal(err)
		}
		if _, err := h.Record(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("the record after its last snapshot: %v, want it removed", err)
		}
		if left, _ := vols.Left(); len(left) != 0 || h.used() != 0 {
			t.Errorf("the host has %v, %d MiB taken", left, h.used())
		}
		h.verify()
	})
}

// Only one snapshot of a volume can be taken at a time, and only if there is room. A
// failed snapshot takes no disk and remains listed.
func TestSnapshotsAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, "w1", 1, nil)
		vols := h.vols
		defer h.crash()
		v := h.place()
		vols.Write(v.ID, poem)
		hold := make(chan struct{})
		vols.SetFault(func(call, _ string) error {
			if call == "Snapshot" {
				<-hold
			}
			return nil
		})
		go func() { _, _ = h.Snapshot(t.Context(), v.ID) }()
		synctest.Wait()
		if _, err := h.Snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || err.Error()[:len("snapshot is already scheduled at ")] != "snapshot is already scheduled at " {
			t.Errorf("a second one: %v, want failed_precondition", err)
		}
		close(hold)
		synctest.Wait()
		if err := h.state.Store.Sync(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := h.get(v.ID).Snapshots
		if len(first) != 1 || first[0].State != bourse.SnapshotCreated {
			t.Fatalf("snapshots %+v, want the first one", first)
		}
		used := h.used()

		vols.SetFault(func(call, _ string) error {
			if call == "Snapshot" {
				return bourse.Errorf(bourse.CodeInsufficient, "the disk of the host is full")
			}
			return nil
		})
		if _, err := h.Snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("on a full disk: %v", err)
		}
		if got := h.get(v.ID).Snapshots; len(got) != 2 || got[1].State != bourse.SnapshotFailed || h.used() != used {
			t.Errorf("afterwards: %+v, %d MiB taken; want a failed snapshot and %d", got, h.used(), used)
		}

		h.place(func(v *bourse.VolumeOrder) { v.SizeGB = 89 })
		vols.SetFault(func(call, _ string) error {
			if call == "Snapshot" { // the snapshot's space was already reserved
				vols.Write(v.ID, string(make([]byte, 1<<19))) // uses 2 GiB of disk
			}
			return nil
		})
		if _, err := h.Snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("a snapshot that became too large: %v", err)
		}
		if kept, _ := vols.Kept(); kept != 1 || h.used() != used+89<<10 {
			t.Errorf("the host has %d snapshots, %d MiB are taken; want 1, %d", kept, h.used(), used+89<<10)
		}
		vols.SetFault(nil)
		if _, err := h.Snapshot(t.Context(), v.ID); bourse.CodeOf(err) != bourse.CodeInsufficient {
			t.Errorf("a snapshot without free space: %v", err)
		}
		h.verify()
	})
}

// A snapshot that is being read is kept after it has expired.
func TestASnapshotInUseIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newRig(t, "w1", 1, nil)
		vols := h.vols
		defer h.crash()
		v := h.place(func(v *bourse.VolumeOrder) { v.RetentionDays = 1 })
		vols.Write(v.ID, poem)
		s, err := h.Snapshot(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		read := func(id bourse.SnapshotID) error {
			return h.Export(t.Context(), string(id), volume.Position{}, io.Discard)
		}
		time.Sleep(day - time.Minute)
		if err := read(s.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Minute)
		if kept, _ := vols.Kept(); kept != 1 {
			t.Error("the snapshot was removed while it was being read")
		}
		if err := read(s.ID); err != nil {
			t.Errorf("second read: %v", err)
		}
		time.Sleep(10*time.Minute - time.Second)
		h.crash()
		h.start()
		if err := read(s.ID); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("a new read after the retention: %v, want not_found", err)
		}
		time.Sleep(2 * time.Minute)
		if kept, _ := vols.Kept(); kept != 0 || len(h.get(v.ID).Snapshots) != 0 {
			t.Error("still there")
		}
	})
}
