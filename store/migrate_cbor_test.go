package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// version8 puts what a daemon of version 8 has left when it was killed into a
// directory: half of it is in the log. want is all of it, as that release read it.
func version8(t *testing.T) (dir, want string) {
	t.Helper()
	dir = golden(t, "version8.db.gz")
	unpack(t, "version8.wal.gz", filepath.Join(dir, "worker.wal.0"))
	b, err := os.ReadFile(filepath.Join("testdata", "version8.json"))
	if err != nil {
		t.Fatal(err)
	}
	return dir, string(b)
}

// dump returns all records as JSON.
func dump(t *testing.T, dir string) string {
	t.Helper()
	s := openIn(t, dir)
	var out []byte
	view(t, s, func(tx *Tx) error {
		id, _, err := tx.Identity()
		committed, err2 := tx.Committed()
		if err := errors.Join(err, err2, tx.Verify()); err != nil {
			return err
		}
		out, err = json.MarshalIndent(map[string]any{
			"identity": id, "committed": committed,
			"log": list(t, entries.all(tx)), "runs": list(t, runs.all(tx)),
			"apps": list(t, apps.all(tx)), "machines": list(t, machines.all(tx)),
			"volumes": list(t, volumes.all(tx)), "holds": list(t, holds.all(tx)),
			"orders": list(t, orders.all(tx)),
		}, "", "\t")
		return err
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return string(out) + "\n"
}

func list[T any](t *testing.T, all iter.Seq2[T, error]) (out []T) {
	t.Helper()
	for v, err := range all {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// A store of version 8 opens, with all that was in its file and in its log, every
// field of it.
func TestMigrateFromVersion8(t *testing.T) {
	dir, want := version8(t)
	for range 2 { // the second time it is of this release
		if diff := cmp.Diff(want, dump(t, dir)); diff != "" {
			t.Errorf("(-before +after):\n%s", diff)
		}
	}
}

// The process dies before each transaction of that migration: the next start
// finishes it.
func TestACrashInTheMigrationFromVersion8(t *testing.T) {
	t.Parallel()
	died := 0
	for over := false; !over; died++ {
		dir, want := version8(t)
		left := died
		s, err := Open(Config{Dir: dir, turn: smallLog, part: func() error {
			if left--; left < 0 {
				return errKill
			}
			return nil
		}})
		if over = err == nil; over {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		} else if !errors.Is(err, errKill) {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, dump(t, dir)); diff != "" {
			t.Errorf("before transaction %d (-before +after):\n%s", died+1, diff)
		}
	}
	if died < 3 {
		t.Errorf("%d transactions, want one for the log and one for the records", died-1)
	}
}

// A damaged store of version 8 is salvaged into one of this version.
func TestSalvageOfVersion8(t *testing.T) {
	dir, want := version8(t)
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(b, []byte("\x01{\"name\":\"x\""))
	if at < 0 {
		t.Fatal("there is no app x")
	}
	b[at+4] ^= 4
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if r, err := Salvage(dir, time.Unix(0, 0)); err != nil || !slices.Equal(r.Lost, []string{"apps: 1 of 2"}) {
		t.Fatalf("salvage: %+v, %v", r, err)
	}
	var before, after map[string][]map[string]any
	for text, into := range map[string]*map[string][]map[string]any{want: &before, dump(t, dir): &after} {
		var all map[string]json.RawMessage
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			t.Fatal(err)
		}
		delete(all, "identity")
		again, err := json.Marshal(all)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, into); err != nil {
			t.Fatal(err)
		}
	}
	before["apps"] = slices.DeleteFunc(before["apps"], func(a map[string]any) bool { return a["name"] == "x" })
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("(-before +after):\n%s", diff)
	}
}

// A record of a task before version 9, byte for byte.
func TestOldTask(t *testing.T) {
	want := OrderRecord{
		ID: "o", At: time.Unix(0, 1).UTC(),
		Task: &TaskRecord{App: "a", Takes: bourse.Amounts{{Resource: "s", Amount: 1}}, Result: bourse.TaskResult{Name: "n"}},
	}
	got, err := readOldOrder([]byte("\x02\n\x01o\x10\x02\x1a\x01a\"\x05\n\x01s\x10\x02*\x03\x12\x01n"))
	if diff := cmp.Diff(any(want), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}
