package kv

import (
	"bytes"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.etcd.io/bbolt"

	"github.com/bourse-dev/bourse"
)

// One flipped bit in worker.db was a machine that had never been, one with
// another record, or a daemon that bbolt had panic. Every 97th bit of a file is
// flipped in Turn: each time every value is what it was, as the check and bbolt
// read them, or the store does not open and names the file.
func TestEveryFlippedBitOfTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir, Turn: 64 << 10})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 60 { // their bucket has several pages, and one above them
		update(t, s, putMachine(n))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, FileName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	read := func() (map[string]string, *examination) {
		got := map[string]string{}
		e := examine(bytes.NewReader(b), int64(len(b)), func(bucket string, k, v []byte) { got[bucket+"/"+string(k)] = string(v) })
		return got, e
	}
	want, whole := read()
	b = b[:whole.pages.Size()] // the file has place for more
	refused, harmless := 0, 0
	for bit := 0; bit < len(b)*8; bit += 97 {
		b[bit/8] ^= 1 << (bit % 8)
		got, e := read()
		switch {
		case len(e.damage) > 0:
			if refused++; refused%100 == 0 {
				overwrite(t, path, b)
				_, err := openConfig(Config{Dir: dir})
				if bourse.CodeOf(err) != bourse.CodeInternal || !strings.Contains(err.Error(), FileName) {
					t.Errorf("bit %d: open: %v, want that the file is damaged", bit, err)
				}
			}
		case !maps.Equal(got, want):
			t.Errorf("bit %d: other values, and nothing is said to be damaged", bit)
		case e.pages.Used(uint64(bit / 8 / os.Getpagesize())):
			if harmless++; harmless%8 != 0 {
				break
			}
			overwrite(t, path, b)
			if diff := cmp.Diff(want, throughBbolt(t, path)); diff != "" {
				t.Errorf("bit %d, as bbolt reads it (-want +got):\n%s", bit, diff)
			}
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if refused < 300 {
		t.Errorf("%d flips were noticed, %d were harmless", refused, harmless)
	}
	t.Logf("%d flips were noticed, %d in pages that are in use were harmless", refused, harmless)
}

func overwrite(t *testing.T, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// throughBbolt reads all that a file has as the store does.
func throughBbolt(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := openFile(path, schema())
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	err = file.View(func(tx Tx) error {
		for _, bucket := range schema().Buckets {
			for k, v := range tx.Range(bucket, nil) {
				got[bucket+"/"+string(k)] = string(v)
				if string(tx.Get(bucket, k)) != string(v) {
					t.Errorf("bucket %s, key %q is not found", bucket, k)
				}
			}
		}
		return nil
	})
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	return got
}

// A value that is damaged while the store is open, in the memory of the host say,
// is not taken for none: the store fails before the reader has an answer.
func TestAValueIsSpoiledWhileTheStoreIsOpen(t *testing.T) {
	dir, _ := written(t)
	var failed error
	s, err := openConfig(Config{Dir: dir, Failed: func(err error) { failed = err }})
	if err != nil {
		t.Fatal(err)
	}
	err = s.file.db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte(bucketMachines))
		stored := bytes.Clone(b.Get([]byte(machineID(7))))
		stored[len(stored)/2] ^= 1
		return b.Put([]byte(machineID(7)), stored)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.View(func(tx Tx) error { return machineOf(tx, machineID(6)) }); err != nil {
		t.Errorf("another machine: %v", err)
	}
	err = s.View(func(tx Tx) error { return machineOf(tx, machineID(7)) })
	if bourse.CodeOf(err) != bourse.CodeTimeout || failed == nil {
		t.Errorf("got %v, failed: %v; want that it is unknown, and that the store has failed", err, failed)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal {
		t.Errorf("open: %v, want that it is damaged", err)
	}
}

// A disk that has lost a write leaves a page that is older, and whole. The
// tallies show it, and a leaf that is missing or there twice.
func TestAnOlderPageIsDamage(t *testing.T) {
	for name, change := range map[string]func(b *bbolt.Bucket, k, v []byte) error{
		"older":   func(b *bbolt.Bucket, k, _ []byte) error { return b.Put(k, seal(bucketApps, k, []byte("older"))) },
		"missing": func(b *bbolt.Bucket, k, _ []byte) error { return b.Delete(k) },
		"twice":   func(b *bbolt.Bucket, _, v []byte) error { return b.Put([]byte("a"), seal(bucketApps, []byte("a"), v)) },
		"moved":   func(b *bbolt.Bucket, k, v []byte) error { return errors.Join(b.Delete(k), b.Put([]byte("a"), v)) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s, err := openConfig(Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			update(t, s, func(tx Tx) error { return tx.Put(bucketApps, []byte("web"), []byte("personal")) })
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			db, err := bbolt.Open(filepath.Join(dir, FileName), 0o600, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(func(tx *bbolt.Tx) error {
				b := tx.Bucket([]byte(bucketApps))
				return change(b, []byte("web"), bytes.Clone(b.Get([]byte("web"))))
			}), db.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeInternal {
				t.Errorf("open: %v, want that it is damaged", err)
			}
		})
	}
}
