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

// A full disk wrote a line for each of a thousand commits: it is one a minute,
// which counts the others.
func TestAFullDiskLogsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &faultyDisk{}
		s, err := openConfig(Config{Dir: t.TempDir(), Turn: 64 << 10, media: d.media(), Log: slog.New(slog.NewTextHandler(&out, nil))})
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
		time.Sleep(quiet.For)
		refused()
		if s.Faults() != 1001 {
			t.Errorf("%d faults are counted, want 1001", s.Faults())
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if got := strings.Count(out.String(), "commit failed"); got != 2 || !strings.Contains(out.String(), "not_logged=999") {
			t.Errorf("%d lines, want 2 of which one counts 999 more:\n%s", got, &out)
		}
	})
}

// A daemon that was killed comes back on a disk that has filled up: it reads all
// that was acknowledged, and records what fits into the log's own place. Moving
// the log into the file before it opened was more than the disk could take.
func TestAFullDiskOpens(t *testing.T) {
	dir := mountSmall(t) // 16 MiB
	const kept = 5
	s, err := openConfig(Config{Dir: dir, Turn: 2 << 20, Fault: func(at FaultStage, n uint64) error {
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
		t.Fatalf("the last one: %v, want that it dies", err)
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
	s, err = openConfig(Config{Dir: dir, Turn: 2 << 20})
	if err != nil {
		t.Fatalf("on a full disk: %v", err)
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

// Orders took all that the log had a place for, so that no end could be recorded
// on a full disk. Now Short asks callers to begin nothing while half a file of the
// log is left, also of a store that is opened on the full disk; it names the
// directory, and ends by itself when there is room.
func TestAFullDiskKeepsRoomForEnds(t *testing.T) {
	dir := mountSmall(t) // 16 MiB
	const turn = 2 << 20
	s, err := openConfig(Config{Dir: dir, Turn: turn})
	if err != nil {
		t.Fatal(err)
	}
	ballast := fill(t, dir)
	n := 0
	put := func() error {
		n++
		return s.Update(t.Context(), putLarge(n, 64<<10))
	}
	for s.Short() == nil {
		if err := put(); err != nil {
			t.Fatalf("write %d is refused although the store is not short: %v", n, err)
		}
	}
	if text := s.Short().Error(); bourse.CodeOf(s.Short()) != bourse.CodeUnavailable || !strings.Contains(text, "the disk of "+dir+" is full: ") {
		t.Errorf("short with %q, want the directory that is full", text)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	fill(t, dir)
	if s, err = openConfig(Config{Dir: dir, Turn: turn}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store is short again", func() bool { return s.Short() != nil })
	for range turn/2/(64<<10) - 2 {
		if err := put(); err != nil {
			t.Fatalf("an end is not recorded: %v", err)
		}
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the store goes on by itself", func() bool { return s.Short() == nil })
	for range 2 * turn / (64 << 10) {
		if err := put(); err != nil {
			t.Fatalf("with room again: %v", err)
		}
	}
	if err := errors.Join(checkCount(s, n), s.Close()); err != nil {
		t.Error(err)
	}
}

// A snapshot that does not fit takes none of the disk's last room from others, and what
// a crash has left of one is removed first.
func TestASnapshotThatDoesNotFit(t *testing.T) {
	dir := mountSmall(t) // 16 MiB
	left := filepath.Join(dir, FileName+".new")
	s := newState()
	s.Set(change{bucketApps, []byte("a"), make([]byte, 6<<20)})
	overwrite(t, left, make([]byte, 12<<20))
	if _, err := writeSnapshot(dir, head{version: 1}, s, func() error { return nil }); err != nil {
		t.Fatalf("in the room of what was left: %v", err)
	}
	overwrite(t, filepath.Join(dir, "ballast"), make([]byte, 6<<20))
	s.Set(change{bucketApps, []byte("b"), []byte{}})
	if _, err := writeSnapshot(dir, head{version: 1}, s, func() error { return nil }); !full(err) {
		t.Errorf("on a disk with less room: %v", err)
	}
	if _, err := os.Stat(left); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left of it: %v", err)
	}
}

// fill writes a file until its disk has no room for another byte.
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

// eventually fails the test unless something is so within some seconds. The
// store returns no other sign.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(what + ": not within 30 s")
		}
	}
}
