package tempdir

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

func keepAll(string) error { return nil }

// TestRemoveLeftover checks that RemoveLeftover removes directories that no process holds. It must not remove those
// that a process holds or is creating, or those of other programs.
func TestRemoveLeftover(t *testing.T) {
	parent := t.TempDir()
	made := func() *Dir {
		t.Helper()
		d, err := Make(parent, "x-")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.Path, "file"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return d
	}
	held, left, stuck := made(), made(), made()
	second, err := Hold(held.Path) // like another process that shares the lock
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []*Dir{held, left, stuck} {
		if err := d.Release(); err != nil {
			t.Fatal(err)
		}
	}
	unborn, precious := filepath.Join(parent, "x-unborn"), t.TempDir()
	if err := errors.Join(
		os.Mkdir(unborn, 0o700),
		os.WriteFile(filepath.Join(precious, lockName), nil, 0o600),
		os.Symlink(precious, filepath.Join(parent, "x-link")),
	); err != nil {
		t.Fatal(err)
	}
	failed := errors.New("in use")
	removed, err := RemoveLeftover(parent, "x-", func(path string) error {
		if path == stuck.Path {
			return failed
		}
		return nil
	})
	if !errors.Is(err, failed) || !slices.Equal(removed, []string{left.Path}) {
		t.Errorf("removed %v, %v; want %s, and %v", removed, err, left.Path, failed)
	}
	for _, path := range []string{held.Path, stuck.Path, unborn, filepath.Join(precious, lockName)} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("a directory that must remain: %v", err)
		}
	}
	if err := second.Remove(); err != nil {
		t.Fatal(err)
	}
	if removed, err := RemoveLeftover(parent, "x-", keepAll); err != nil || !slices.Equal(removed, []string{stuck.Path}) {
		t.Errorf("second call: removed %v, %v", removed, err)
	}
}

// Concurrent calls of Make and RemoveLeftover never remove a directory that a process holds.
func TestMakeWhileOthersRemove(t *testing.T) {
	parent := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 50 {
				d, err := Make(parent, "x-")
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := RemoveLeftover(parent, "x-", keepAll); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(filepath.Join(d.Path, lockName)); err != nil {
					t.Errorf("a directory that is held: %v", err)
				}
				if err := d.Release(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, err := RemoveLeftover(parent, "x-", keepAll); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(parent); err != nil || len(left) > 0 {
		t.Errorf("remaining directories: %v, %v", left, err)
	}
}
