package kv

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

func TestOpenMakesPrivateFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for path, want := range map[string]os.FileMode{dir: 0o700, filepath.Join(dir, FileName): 0o600} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: mode %v (%v), want %v", path, info.Mode().Perm(), err, want)
		}
	}
}

func TestTwoDaemonsOnOneDirectory(t *testing.T) {
	dir := t.TempDir()
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeAlreadyExists {
		t.Errorf("second open: got %v (%s), want already_exists", err, bourse.CodeOf(err))
	}
	update(t, s, putMachine(1))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}

func TestClosedStore(t *testing.T) {
	s, err := openConfig(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Update(t.Context(), func(Tx) error { return nil }); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("update: got %v, want unavailable", err)
	}
	if err := s.View(func(Tx) error { return nil }); bourse.CodeOf(err) != bourse.CodeUnavailable {
		t.Errorf("view: got %v, want unavailable", err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("sync: %v", err)
	}
}

// written creates a store with 200 machines, and returns its directory and snapshot file.
func written(t *testing.T) (dir, path string) {
	t.Helper()
	dir = t.TempDir()
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 200 {
		update(t, s, putMachine(n))
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return dir, filepath.Join(dir, FileName)
}

func TestStoreOfAnotherVersionIsNotChanged(t *testing.T) {
	dir, path := written(t)
	if _, err := writeSnapshot(dir, head{version: 99}, newState(), func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second attempt shows that the first one has released the lock
		if _, err := openConfig(Config{Dir: dir}); bourse.CodeOf(err) != bourse.CodeFailedPrecondition || !strings.Contains(err.Error(), "version 99, but this program supports only version 1:") {
			t.Errorf("open: %v (%s)", err, bourse.CodeOf(err))
		}
	}
	after, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file was changed: %v", err)
	}
}

func TestDamagedFile(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string]func([]byte) []byte{
		"text":                    func([]byte) []byte { return []byte("this is no database\n") },
		"empty":                   func([]byte) []byte { return nil },
		"zeros":                   func(b []byte) []byte { return make([]byte, len(b)) },
		"truncated in the head":   func(b []byte) []byte { return b[:headSize/2] },
		"cut after it":            func(b []byte) []byte { return b[:headSize] },
		"truncated in the middle": func(b []byte) []byte { return b[:len(b)/2] },
		"truncated at the end":    func(b []byte) []byte { return b[:len(b)-1] },
		"a hole":                  func(b []byte) []byte { return append(b[:len(b)/2:len(b)/2], b[len(b)/2+100:]...) },
		"twice":                   func(b []byte) []byte { return append(b, b...) },
	} {
		t.Run(name, func(t *testing.T) {
			dir, path := written(t)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, damage(b), 0o600); err != nil {
				t.Fatal(err)
			}
			s, err := openConfig(Config{Dir: dir})
			if bourse.CodeOf(err) != bourse.CodeInternal {
				t.Errorf("open: %v (%s), want internal", err, bourse.CodeOf(err))
			}
			if s != nil {
				t.Error("Open returned both a store and an error")
			}
		})
	}
}

// TestFirstOpenResumes checks that Open succeeds after an earlier first Open was interrupted.
func TestFirstOpenResumes(t *testing.T) {
	dir := t.TempDir()
	overwrite(t, filepath.Join(dir, FileName+".new"), []byte(magic))
	s, err := openConfig(Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if err := s.Update(t.Context(), func(tx Tx) error { return tx.Put(bucketMeta, []byte("identity"), []byte("w1")) }); err != nil {
		t.Error(err)
	}
}
