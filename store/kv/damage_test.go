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

// flips calls fn repeatedly, each time for a copy of a directory in which one bit of a file is
// flipped: every nth bit of the file's first length bytes.
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

// tryOpen opens a store and returns its number of machines. It returns -1 if the store does not open because it is
// damaged; the error must then name the file.
func tryOpen(t *testing.T, dir string, what string, file string) int {
	t.Helper()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 64 << 10})
	if err != nil {
		if bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("%s: got error %v, want one that reports damage", what, err)
		}
		if !strings.Contains(err.Error(), file) || !strings.Contains(err.Error(), "bourse worker store recover") {
			t.Errorf("%s: error %v does not name the file and the command that recovers it", what, err)
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

// TestEveryFlippedBitOfTheLog flips every 97th bit of a log, one at a time. The store must either contain all
// acknowledged transactions or refuse to open, even if the bit belongs to the last record. An earlier version mistook a
// flipped bit for an incomplete last record, and ignored all later records.
func TestEveryFlippedBitOfTheLog(t *testing.T) {
	t.Parallel()
	const machines = 12
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 64 << 10})
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
		switch n := tryOpen(t, dir, fmt.Sprintf("bit %d", bit), walNames[0]); n {
		case -1:
			refused++
		case machines:
			opened++
		default:
			t.Errorf("bit %d: %d machines, want %d or a refusal to open", bit, n, machines)
		}
	})
	// Only flipping a bit of the last mark is harmless, because the mark is not part of a
	// record.
	if refused < 100 || opened > int(walHeader*8/97)+1 {
		t.Errorf("%d flips were detected, %d were harmless", refused, opened)
	}
}

// TestPayloadIsNotReadAsARecord checks that a value that looks like a log record with a later number is not read as a
// record, because it does not contain the log's salt. Otherwise a client could make the store refuse to open after a
// crash.
func TestPayloadIsNotReadAsARecord(t *testing.T) {
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 1 << 20})
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
	clear(b[end-1:]) // truncates the last record, so that the store searches its payload for records
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
				t.Errorf("record %d: found %t, want %t", n, got, want)
			}
		}
		return nil
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestLogIsKeptUntilACheckpoint checks that records remain in the log until a checkpoint has saved them. A store that
// crashes again before that must contain both the earlier and the new transactions.
func TestLogIsKeptUntilACheckpoint(t *testing.T) {
	dir := t.TempDir()
	n := 0
	for range 4 {
		// The copy of each store is in the state that a crash would leave.
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
