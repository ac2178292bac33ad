package store

import (
	"bytes"
	"slices"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestKeysAreDeletedWithTheirMachine checks that a machine's keys can be read as they were written, also after a
// restart, and are deleted with the machine.
func TestKeysAreDeletedWithTheirMachine(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(Config{Dir: dir, logFileSize: smallLog})
	if err != nil {
		t.Fatal(err)
	}
	one, two := bourse.AppKeys(bytes.Repeat([]byte{1}, bourse.AppKeySize)), bourse.AppKeys(bytes.Repeat([]byte{2}, 3*bourse.AppKeySize))
	update(t, s, func(tx *Tx) error {
		for i := range 2 {
			if err := tx.PutMachine(machine(i, bourse.StateCreated)); err != nil {
				return err
			}
			if err := tx.PutAppKeys(machineID(i), one); err != nil {
				return err
			}
		}
		for what, bad := range map[string]bourse.AppKeys{"half a key": one[:16], "too many": bytes.Repeat(one, bourse.MaxAppKeys+1)} {
			if err := tx.PutAppKeys(machineID(0), bad); bourse.CodeOf(err) != bourse.CodeInvalid {
				t.Errorf("%s: %v, want invalid", what, err)
			}
		}
		return tx.PutAppKeys(machineID(0), two)
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(Config{Dir: dir, logFileSize: smallLog}); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	has := func(i int, want bourse.AppKeys) {
		t.Helper()
		view(t, s, func(tx *Tx) error {
			if got := tx.AppKeys(machineID(i)); !slices.Equal(got, want) {
				t.Errorf("machine %d has %x, want %x", i, []byte(got), []byte(want))
			}
			return tx.Verify()
		})
	}
	has(0, two)
	has(1, one)
	update(t, s, func(tx *Tx) error {
		for _, state := range []bourse.State{bourse.StateDestroying, bourse.StateDestroyed} {
			if err := tx.PutMachine(machine(0, state)); err != nil {
				return err
			}
		}
		return nil
	})
	has(0, nil)
	has(1, one)
}
