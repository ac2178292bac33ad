package store

import (
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store/kv"
)

// golden puts a file that an older release has written into a directory.
func golden(t *testing.T, name string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	unpack(t, name, filepath.Join(dir, FileName))
	return dir
}

// unpack writes what testdata has of a name to a path.
func unpack(t testing.TB, name, path string) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	packed, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(packed)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// A file of version 1 opens, has all that it had, and takes volumes.
func TestMigrateFromVersion1(t *testing.T) {
	dir := golden(t, "version1.db.gz")
	for range 2 { // the second time it is of this release
		s, err := Open(Config{Dir: dir, turn: smallLog})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			if id, ok, err := tx.Identity(); err != nil || !ok || id.Worker != "w1" || id.Tag != 7 {
				t.Errorf("identity %+v %t %v", id, ok, err)
			}
			states := map[bourse.MachineID]bourse.State{}
			for m, err := range tx.Machines() {
				if err != nil {
					return err
				}
				states[m.ID] = m.State
			}
			want := map[bourse.MachineID]bourse.State{
				machineID(0): bourse.StateStarted, machineID(1): bourse.StateDestroyed, machineID(2): bourse.StateStopped,
			}
			if diff := cmp.Diff(want, states); diff != "" {
				t.Errorf("machines (-want +got):\n%s", diff)
			}
			rec, ok, err := tx.Order("01ARZ3NDEKTSV4RRFFQ69G5FA0")
			if err != nil || !ok || rec.Machine != machineID(0) || rec.Volume != "" {
				t.Errorf("order %+v %t %v", rec, ok, err)
			}
			if open, err := tx.unfinished(); err != nil || len(open) != 1 || open[0].Definition != "machine.create" {
				t.Errorf("unfinished runs %+v %v, want the one", open, err)
			}
			if log, err := tx.Entries(KindMachine, string(machineID(0)), 0); err != nil || len(log) != 3 {
				t.Errorf("%d log entries (%v), want 3", len(log), err)
			}
			return tx.Verify()
		})
		update(t, s, func(tx *Tx) error { return tx.PutVolume(aVolume(1, bourse.VolumeCreating)) })
		view(t, s, func(tx *Tx) error {
			committed, err := tx.Committed()
			want := bourse.Amounts{{Resource: "cpu", Amount: 250}, {Resource: "disk", Amount: 1024}, {Resource: "memory", Amount: 512}}
			if diff := cmp.Diff(want, committed); err != nil || diff != "" {
				t.Errorf("committed %v (-want +got):\n%s", err, diff)
			}
			return tx.Verify()
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A crash between two steps of a migration leaves a file of the version before,
// from which the next start goes on.
func TestMigrateStepByStep(t *testing.T) {
	for n := range schema().Migrations {
		dir := golden(t, "version1.db.gz")
		upTo := schema()
		upTo.Migrations = upTo.Migrations[:n+1]
		f, err := kv.OpenFile(filepath.Join(dir, FileName), upTo)
		if err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := Check(dir); err != nil || r.Version != n+1 || len(r.Damage) > 0 || r.Machines != 3 {
			t.Errorf("after step %d: %+v, %v", n, r, err)
		}
		s, err := Open(Config{Dir: dir, turn: smallLog})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			if got := tx.LivingOf(bourse.App{Name: "default"}); got != 2 {
				t.Errorf("after step %d: %d machines, want 2", n, got)
			}
			return tx.Verify()
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := Check(dir); err != nil || r.Version != len(schema().Migrations) || len(r.Damage) > 0 {
			t.Errorf("after step %d and a start: %+v, %v", n, r, err)
		}
	}
}

// A file of version 3 opens, has all that it had, and goes on counting its log
// where bbolt's own sequence was, not where the last entry is.
func TestMigrateFromVersion3(t *testing.T) {
	dir := golden(t, "version3.db.gz")
	for n := range 2 { // the second time it is of this release
		s, err := Open(Config{Dir: dir, turn: smallLog})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			if got := tx.LivingOf(bourse.App{Name: "default"}); got != 3 {
				t.Errorf("%d machines, want 3", got)
			}
			return tx.Verify()
		})
		var e Entry
		update(t, s, func(tx *Tx) (err error) {
			e, err = tx.Append(Entry{Kind: KindMachine, ID: string(machineID(0)), Event: bourse.Event{Type: "start"}})
			return err
		})
		if want := uint64(4 + n); e.Seq != want {
			t.Errorf("the next entry has number %d, want %d", e.Seq, want)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The file of the release before, without checksums, has them after it was
// opened once, and all that it had.
func TestMigrateFromVersion7(t *testing.T) {
	dir := golden(t, "version7.db.gz")
	for range 2 {
		s, err := Open(Config{Dir: dir, turn: smallLog})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			if got := tx.LivingOf(bourse.App{Name: "default"}); got != 40 {
				t.Errorf("%d machines, want 40", got)
			}
			if id, ok, err := tx.Identity(); err != nil || !ok || id.Worker != "w1" || id.Tag != 7 {
				t.Errorf("identity %+v %t %v", id, ok, err)
			}
			if o, ok, err := tx.Order("01ARZ3NDEKTSV4RRFFQ69G5FA0"); err != nil || !ok || o.Machine != machineID(0) {
				t.Errorf("order %+v %t %v", o, ok, err)
			}
			return tx.Verify()
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if r, err := Check(dir); err != nil || r.Version != len(schema().Migrations) || len(r.Damage) > 0 || r.Machines != 40 {
			t.Errorf("%+v, %v", r, err)
		}
	}
}
