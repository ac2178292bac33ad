package kv

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
)

// copyDir copies a store's directory as a crash would leave it.
func copyDir(t testing.TB, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return to
}

// reopened opens a store and checks that it contains exactly the first want machines.
func reopened(t *testing.T, dir string, want int) {
	t.Helper()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	view(t, s, func(tx Tx) error {
		if got := countMachines(tx); got != want {
			t.Errorf("%d machines, want %d", got, want)
		}
		for n := range want {
			if err := machineOf(tx, machineID(n)); err != nil {
				t.Errorf("machine %d: %v", n, err)
			}
		}
		return verify(tx)
	})
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// TestTornRecord checks that if a power failure leaves an incomplete last record, the record is ignored, no matter
// which part of it is missing, and that all earlier records are read.
func TestTornRecord(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	var ends []int64
	for n := range 3 {
		update(t, s, putMachine(n))
		ends = append(ends, s.wal.end)
	}
	crashed := copyDir(t, dir)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(crashed, walNames[0]))
	if err != nil {
		t.Fatal(err)
	}
	reopened(t, copyDir(t, crashed), 3)
	size := ends[2] - ends[1]
	for at := int64(0); at < size; at += 1 + size/40 {
		for name, tear := range map[string]func(b []byte) []byte{
			"zeros behind": func(b []byte) []byte { clear(b[ends[1]+at:]); return b },
			"cut":          func(b []byte) []byte { return b[:ends[1]+at] },
			"a bit":        func(b []byte) []byte { b[ends[1]+at] ^= 0x10; clear(b[ends[2]:]); return b }, // its mark is missing
		} {
			torn := copyDir(t, crashed)
			if err := os.WriteFile(filepath.Join(torn, walNames[0]), tear(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			t.Log(name, at)
			reopened(t, torn, 2)
		}
	}
}

// TestMissingRecords checks that a store with a gap between its records is treated as damaged.
func TestMissingRecords(t *testing.T) {
	blocked := make(chan struct{})
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, LogFileSize: 1, Step: func() error { <-blocked; return nil }})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 { // the first record is in the first file, whose checkpoint is blocked; the other records are in the second file
		update(t, s, putMachine(n))
	}
	crashed := copyDir(t, dir)
	close(blocked)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	reopened(t, copyDir(t, crashed), 3)
	if err := os.Truncate(filepath.Join(crashed, walNames[0]), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := openConfig(Config{Dir: crashed}); bourse.CodeOf(err) != bourse.CodeInternal {
		t.Errorf("open: %v, want internal", err)
	}
}

// TestLogGrows checks that the other file grows beyond its reserved space while a checkpoint is
// blocked, and shrinks after that file's own checkpoint.
func TestLogGrows(t *testing.T) {
	const turn, record = 2 << 20, 1 << 20
	blocked, first := make(chan struct{}), true
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, LogFileSize: turn, Step: func() error {
		if first {
			first = false
			<-blocked
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	writes := byte(0)
	large := func() {
		writes++
		update(t, s, func(tx Tx) error { return tx.Put(bucketApps, []byte("a"), bytes.Repeat([]byte{writes}, record)) })
	}
	for range 2 + 7 { // the first two writes fill the first file
		large()
	}
	update(t, s, func(Tx) error { return nil })                                  // waits for the previous file switch
	if info, err := s.wal.files[1].Stat(); err != nil || info.Size() != 5*turn { // its records, and the space reserved for later ones
		t.Errorf("the second file has %d bytes (%v), want %d", info.Size(), err, 5*turn)
	}
	close(blocked)
	for range 4 { // the first write switches to the first file; the next two fill it, so the log switches back
		s.checkpoint.Wait()
		large()
		update(t, s, func(Tx) error { return nil }) // waits for the previous file switch
	}
	if info, err := s.wal.files[1].Stat(); err != nil || info.Size() != turn+turn/4 {
		t.Errorf("after its checkpoint the second file has %d bytes (%v), want %d", info.Size(), err, turn+turn/4)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openIn(t, dir)
	view(t, s, func(tx Tx) error {
		if v := tx.Get(bucketApps, []byte("a")); len(v) != record || v[0] != writes {
			t.Errorf("the value has %d bytes", len(v))
		}
		return nil
	})
}

// FuzzReadRecords passes arbitrary bytes to the decoders of the write-ahead log.
func FuzzReadRecords(f *testing.F) {
	dir := f.TempDir()
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		f.Fatal(err)
	}
	for n := range 2 {
		update(f, s, putMachine(n))
	}
	b, err := os.ReadFile(filepath.Join(dir, walNames[0]))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:s.wal.end])
	f.Add(b[:s.wal.end-1])
	if err := s.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		found := walScan{intact: map[uint64]walRecord{}, damaged: map[uint64]walPlace{}}
		found.read(s.wal.salt, b, 0, 0)
		_ = found.missing(0)
		records := slices.Collect(maps.Values(found.intact))
		for i, r := range append(records, walRecord{body: b}) {
			into := newState()
			if err := readOps(r.body, s.cfg.Schema.Buckets, func(c change) { into.Set(c) }); err != nil && bourse.CodeOf(err) != bourse.CodeInternal {
				t.Errorf("record %d: code %s", i, bourse.CodeOf(err))
			}
			var again []byte
			into.Scan(func(c change) bool { again = appendOp(again, &c); return true })
			if err := readOps(again, s.cfg.Schema.Buckets, func(change) {}); err != nil {
				t.Errorf("record %d: the decoded record cannot be encoded and decoded again: %v", i, err)
			}
		}
	})
}

// TestLogGrowsByLittle checks that if little space is left on the disk, the log grows only by the
// size of a record.
func TestLogGrowsByLittle(t *testing.T) {
	dir := mountSmall(t) // a file system of 16 MiB
	w, err := openWAL(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.close() })
	if err := os.WriteFile(dir+"/ballast", make([]byte, 5<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	record := func() []byte { return make([]byte, walHeader+300<<10) }
	written := 0
	for ; err == nil; written++ {
		err = w.append(record())
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("write on the full disk: %v", err)
	}
	if least := (walSize + walSize/4 + 700<<10) / len(record()); written-1 < least {
		t.Errorf("%d records of %d bytes were accepted, want %d, because 1 MiB more was free", written-1, len(record()), least)
	}
	if err := os.Remove(dir + "/ballast"); err != nil {
		t.Fatal(err)
	}
	if err := w.append(record()); err != nil {
		t.Errorf("write after space was freed: %v", err)
	}
	if all, err := w.scan(0); err != nil || len(all.records) != written || len(all.damage) > 0 {
		t.Errorf("read %d records (%v, %v), want %d", len(all.records), all.damage, err, written)
	}
}
