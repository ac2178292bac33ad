package kv

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// flips calls fn for a directory with every nth bit of a file's first bytes
// flipped, one at a time.
func flips(t *testing.T, from, file string, length int64, nth int, fn func(dir string, bit int)) {
	t.Helper()
	whole, err := os.ReadFile(filepath.Join(from, file))
	if err != nil {
		t.Fatal(err)
	}
	for bit := 0; bit < int(length)*8; bit += nth {
		dir := copyDir(t, from)
		b := bytes.Clone(whole)
		b[bit/8] ^= 1 << (bit % 8)
		if err := os.WriteFile(filepath.Join(dir, file), b, 0o600); err != nil {
			t.Fatal(err)
		}
		fn(dir, bit)
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
}

// tried opens a directory and returns how many of the machines it has; -1 when
// it does not open because it is damaged, and says so with a file's name.
func tried(t *testing.T, dir string, what string, file string) int {
	t.Helper()
	s, err := openConfig(Config{Dir: dir, Turn: 64 << 10})
	if err != nil {
		if bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: %v, want that it is damaged", what, err)
		}
		if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "bourse worker store recover") {
			t.Errorf("%s: %v does not say where the damage is and what to do", what, err)
		}
		return -1
	}
	n := 0
	view(t, s, func(tx Tx) error {
		for id, v := range tx.Range(bucketMachines, nil) {
			if string(id) != machineID(n) || !bytes.Equal(v, machine(n, 0)) {
				t.Errorf("%s: machine %d is %q: %q", what, n, id, v)
			}
			n++
		}
		return verify(tx)
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	return n
}

// One flipped bit was taken for the log's torn end, and what came behind it was
// forgotten. Every 97th bit of a log is flipped in Turn: each time the store has
// all that was acknowledged, or does not open, also when the bit is one of the
// last record.
func TestEveryFlippedBitOfTheLog(t *testing.T) {
	t.Parallel()
	const machines = 12
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, Turn: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for n := range machines {
		update(t, s, putMachine(n))
	}
	length := s.wal.end + walHeader
	crashed := copyDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	refused, opened := 0, 0
	flips(t, crashed, walNames[0], length, 97, func(dir string, bit int) {
		switch n := tried(t, dir, fmt.Sprintf("bit %d", bit), walNames[0]); n {
		case -1:
			refused++
		case machines:
			opened++
		default:
			t.Errorf("bit %d: %d machines, want %d or a refusal to open", bit, n, machines)
		}
	})
	// Only a bit of the last mark says nothing of a record.
	if refused < 100 || opened > int(walHeader*8/97)+1 {
		t.Errorf("%d flips were noticed, %d were harmless", refused, opened)
	}
}

// Records are as many bytes as tenants like to write. One that looks like a
// record of the log, with a later number, is none without the log's salt: else a
// tenant could have the store refuse to open after a crash.
func TestAPayloadIsNoRecord(t *testing.T) {
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, Turn: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	forged := make([]byte, walHeader+8)
	copy(forged[walHeader:], "a record")
	salt{}.putHead(forged, forged[walHeader:], 5)
	for n := range 3 {
		update(t, s, func(tx Tx) error { return tx.Put(bucketApps, []byte{byte(n + 1)}, bytes.Repeat(forged, 1+n)) })
	}
	crashed, end := copyDir(t, dir), s.wal.end
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(crashed, walNames[0]))
	if err != nil {
		t.Fatal(err)
	}
	clear(b[end-1:]) // the last record is torn, and the bytes of its payload are looked through
	if err := os.WriteFile(filepath.Join(crashed, walNames[0]), b, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err = openConfig(Config{Dir: crashed})
	if err != nil {
		t.Fatal(err)
	}
	view(t, s, func(tx Tx) error {
		for n, want := range []bool{true, true, false} {
			if got := tx.Get(bucketApps, []byte{byte(n + 1)}) != nil; got != want {
				t.Errorf("record %d: there %t, want %t", n, got, want)
			}
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// What is in the log when the store is opened stays there until a checkpoint
// has moved it, and a store that is killed again before that has both: what was
// there, and what came.
func TestALogIsContinued(t *testing.T) {
	dir := t.TempDir()
	n := 0
	for range 4 {
		// Each store is left as a crash would leave it, in a copy.
		s, err := openConfig(Config{Dir: dir, Step: func() error { return errNoRoom }})
		if err != nil {
			t.Fatal(err)
		}
		for range 5 {
			update(t, s, putMachine(n))
			n++
		}
		view(t, s, verify)
		dir = copyDir(t, dir)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	reopened(t, dir, n)
	reopened(t, dir, n)
}
