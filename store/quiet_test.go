package store

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// A full disk wrote a line for each of a thousand commits: it is one a minute,
// which counts the others.
func TestAFullDiskLogsOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := &faultyDisk{}
		s, err := Open(Config{Dir: t.TempDir(), turn: 64 << 10, media: d.media(), Log: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatal(err)
		}
		d.set("write", syscall.ENOSPC)
		refused := func() {
			t.Helper()
			err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutMachine(machine(0, bourse.StateCreated)) })
			if bourse.CodeOf(err) != bourse.CodeUnavailable {
				t.Fatalf("got %v, want unavailable", err)
			}
		}
		for range 1000 {
			refused()
		}
		time.Sleep(quietFor)
		refused()
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
	s, err := Open(Config{Dir: dir, turn: 2 << 20, Fault: func(at FaultStage, n uint64) error {
		if at == FaultAfter && n == kept {
			return errKill
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	for n := range kept {
		err = s.Update(t.Context(), func(tx *Tx) error {
			m := machine(n, bourse.StateCreated)
			m.Config.Metadata = map[string]string{"ballast": strings.Repeat("x", 256<<10)}
			return tx.PutMachine(m)
		})
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
	s, err = Open(Config{Dir: dir, turn: 2 << 20})
	if err != nil {
		t.Fatalf("on a full disk: %v", err)
	}
	update(t, s, func(tx *Tx) error { return tx.PutMachine(machine(kept, bourse.StateCreated)) })
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
