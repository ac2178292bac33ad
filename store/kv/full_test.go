package kv

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// TestFullDiskIsLoggedOncePerMinute checks that if a thousand commits fail because the disk is full, only one line per
// minute is logged. The line contains the number of failures that were not logged.
func TestFullDiskIsLoggedOncePerMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &faultyDisk{}
		s, err := openConfig(Config{Dir: t.TempDir(), LogFileSize: 64 << 10, diskOps: d.media(), Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		d.set("write", syscall.ENOSPC)
		refused := func() {
			t.Helper()
			err := s.Update(t.Context(), putMachine(0))
			if bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Fatalf("got %v, want unavailable", err)
			}
		}
		for range 1000 {
			refused()
		}
		time.Sleep(quiet.Period)
		refused()
		if s.Faults() != 1001 {
			t.Errorf("%d failures were counted, want 1001", s.Faults())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(out.String(), "commit failed"); got != 2 || !strings.Contains(out.String(), "not_logged=999") {
			t.Errorf("%d lines, want 2, one of them with 999 unlogged failures:\n%s", got, &out)
		}
	})
}

// TestOpenOnAFullDisk checks that a daemon that was killed can open its store on a disk that has become full. It must
// read all acknowledged transactions, and can record new ones in the reserved space of the log. An earlier version
// needed additional disk space to open.
func TestOpenOnAFullDisk(t *testing.T) {
	dir := mountSmall(t) // a file system of 16 MiB
	const kept = 5
	s, err := openConfig(Config{Dir: dir, LogFileSize: 2 << 20, Fault: func(at FaultStage, n uint64) error {
		if at == FaultAfter && n == kept {
			return errKill
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range kept {
		err = s.Update(t.Context(), putLarge(n, 256<<10))
	}
	if bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Fatalf("the last child process: %v, want that it is killed", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(dir + "/ballast")
	if err != nil {
		t.Fatal(err)
	}
	for b := make([]byte, 1<<10); err == nil; {
		_, err = f.Write(b)
	}
	_ = f.Close()
	s, err = openConfig(Config{Dir: dir, LogFileSize: 2 << 20})
	if err != nil {
		t.Fatalf("write on a full disk: %v", err)
	}
	update(t, s, putMachine(kept))
	if err := checkCount(s, kept+1); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Remove(dir + "/ballast"); err != nil {
		t.Fatal(err)
	}
	reopened(t, dir, kept+1)
}

// TestFullDiskReservesSpaceForEnds checks that SpaceError reports an error while half a log file is still free, even if
// the store was opened on a full disk. Callers then do not start new work, so the remaining space can be used to record
// the end of existing work. The error must name the directory, and disappear once there is space.
func TestFullDiskReservesSpaceForEnds(t *testing.T) {
	dir := mountSmall(t) // a file system of 16 MiB
	const turn = 2 << 20
	s, err := openConfig(Config{Dir: dir, LogFileSize: turn})
	if err != nil {
		t.Fatal(err)
	}
	ballast := fill(t, dir)
	n := 0
	put := func() error {
		n++
		return s.Update(t.Context(), putLarge(n, 64<<10))
	}
	for s.SpaceError() == nil {
		if err := put(); err != nil {
			t.Fatalf("write %d was refused although SpaceError reported no error: %v", n, err)
		}
	}
	if text := s.SpaceError().Error(); bourse.CodeOf(s.SpaceError()) != bourse.CodeUnavailable || !strings.Contains(text, "the disk of "+dir+" is full: ") {
		t.Errorf("got space error %q, want one that names the full directory", text)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	if s, err = openConfig(Config{Dir: dir, LogFileSize: turn}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "SpaceError to report an error again", func() bool { return s.SpaceError() != nil })
	for range turn/2/(64<<10) - 2 {
		if err := put(); err != nil {
			t.Fatalf("the end of existing work was not recorded: %v", err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store to continue without help", func() bool { return s.SpaceError() == nil })
	for range 2 * turn / (64 << 10) {
		if err := put(); err != nil {
			t.Fatalf("write after space was freed: %v", err)
		}
	}
	if err := errors.Join(checkCount(s, n), s.Close()); err != nil {
		t.Error(err)
	}
}

// TestASnapshotThatDoesNotFit checks that a snapshot that does not fit does not use up the disk's
// last free space, and that the partial file of an interrupted snapshot is removed first.
func TestASnapshotThatDoesNotFit(t *testing.T) {
	dir := mountSmall(t) // a file system of 16 MiB
	left := filepath.Join(dir, FileName+".new")
	s := newState()
	s.Set(change{bucketApps, []byte("a"), make([]byte, 6<<20)})
	overwrite(t, left, make([]byte, 12<<20))
	if _, err := writeSnapshot(dir, head{version: 1}, s, func() error { return nil }); err != nil {
		t.Fatalf("snapshot in the space of the removed remains: %v", err)
	}
	overwrite(t, filepath.Join(dir, "ballast"), make([]byte, 6<<20))
	s.Set(change{bucketApps, []byte("b"), []byte{}})
	if _, err := writeSnapshot(dir, head{version: 1}, s, func() error { return nil }); !isDiskFull(err) {
		t.Errorf("snapshot on a disk with less space: %v", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the failed snapshot left a file: %v", err)
	}
}

// fill writes a file until the disk is completely full.
func fill(t *testing.T, dir string) string {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, "ballast"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, size := range []int{64 << 10, 1} {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return f.Name()
}

// eventually fails the test unless condition returns true within 30 seconds. It polls, because the
// store does not signal these changes.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not within 30 s")
		}
	}
}
