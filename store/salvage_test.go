package store

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

// One machine's record is damaged: the store does not open, check names the
// record and changes nothing, and salvage makes a store of all others that
// opens, and keeps the damaged files.
func TestSalvage(t *testing.T) {
	dir, path := written(t) // 200 machines
	if r, err := Check(dir); err != nil || len(r.Damage) > 0 || r.Machines != 200 {
		t.Fatalf("whole: %+v, %v", r, err)
	}
	if _, err := Salvage(dir, time.Unix(0, 0)); bourse.CodeOf(err) != bourse.CodeFailedPrecondition {
		t.Errorf("salvage of what is whole: %v, want a refusal", err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	examine(bytes.NewReader(b), int64(len(b)), func(bucket string, k, v []byte) {
		if bucket == bucketMachines && string(k) == string(machineID(77)) {
			b[bytes.Index(b, v)+len(v)/2] ^= 4
		}
	})
	overwrite(t, path, b)
	if _, err := Open(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), "worker store salvage") {
		t.Errorf("open: %v, want a refusal that names the command", err)
	}
	r, err := Check(dir)
	if err != nil || len(r.Damage) == 0 || !strings.Contains(r.Damage[0], string(machineID(77))) {
		t.Fatalf("check: %+v, %v, want the damaged record", r, err)
	}
	if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, b) {
		t.Errorf("check has changed the file: %v", err)
	}
	r, err = Salvage(dir, time.Unix(0, 0))
	if err != nil || len(r.Lost) != 1 || r.Lost[0] != "machines: 1 of 200" {
		t.Fatalf("salvage: %+v, %v", r, err)
	}
	if kept, err := os.ReadFile(filepath.Join(dir, r.Kept[0])); err != nil || !bytes.Equal(kept, b) {
		t.Errorf("the damaged file is not kept: %v", err)
	}
	for range 2 {
		s, err := Open(Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) error {
			if _, err := tx.Machine(machineID(77)); bourse.CodeOf(err) != bourse.CodeNotFound {
				t.Errorf("machine 77: %v, want none", err)
			}
			if n := tx.LivingOf(bourse.App{Name: "default"}); n != 199 {
				t.Errorf("%d machines, want 199", n)
			}
			return tx.Verify()
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The pages above all machines are damaged: what is below them is found, by the
// checksums, and nothing that was replaced or removed comes back.
func TestSalvageFindsWhatIsBelowADamagedPage(t *testing.T) {
	dir, path := written(t)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	size := os.Getpagesize()
	for at := 2 * size; at < len(b); at += size { // pages above others, which are in use
		if e := examine(bytes.NewReader(b), int64(len(b)), nil); b[at+8] == 1 && e.pages.Used(uint64(at/size)) {
			b[at] ^= 1 // their number
		}
	}
	overwrite(t, path, b)
	if _, err := Open(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal {
		t.Fatalf("open: %v, want a refusal", err)
	}
	r, err := Salvage(dir, time.Unix(0, 0))
	if err != nil || len(r.Lost) != 0 {
		t.Fatalf("salvage: %+v, %v; want nothing to be lost", r, err)
	}
	reopened(t, dir, 200)
}

// While a daemon has the store neither looks at it.
func TestSalvageWaitsForNoDaemon(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Check(dir); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("check: %v", err)
	}
	if _, err := Salvage(dir, time.Unix(0, 0)); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("salvage: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
