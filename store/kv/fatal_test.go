package kv

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/bourse-dev/bourse"
)

// faultyDisk is a disk on which one kind of operation fails.
type faultyDisk struct {
	mu  sync.Mutex
	op  string // "write", "short write" or "sync"
	err error
}

func (d *faultyDisk) fails(op string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.op == op
}

func (d *faultyDisk) set(op string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.op, d.err = op, err
}

func (d *faultyDisk) media() *diskOps {
	return &diskOps{
		writeAt: func(f *os.File, b []byte, at int64) (int, error) {
			switch {
			case d.fails("write"):
				return 0, d.err
			case d.fails("short write"):
				n, err := f.WriteAt(b[:len(b)/2], at)
				return n, errors.Join(d.err, err)
			}
			return f.WriteAt(b, at)
		},
		sync: func(f *os.File) error {
			if d.fails("sync") {
				return d.err
			}
			return datasync(f)
		},
	}
}

// TestFailedWriteHasAnUnknownOutcome checks that after a failed sync or write, the transaction's outcome is unknown,
// because its record may be read after a restart. The daemon must be terminated before any caller receives an answer,
// and later reads and writes must fail. An earlier version reported such a transaction as refused (CodeUnavailable).
func TestFailedWriteHasAnUnknownOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		op    string
		err   error
		clean bool // nothing was written, so the transaction is refused and the store continues
		after int  // number of machines after a restart
	}{
		"EIO from a sync":                  {"sync", syscall.EIO, false, 2},
		"no space at a sync":               {"sync", syscall.ENOSPC, false, 2},
		"EIO from a write":                 {"write", syscall.EIO, false, 1},
		"EIO in the middle of a write":     {"short write", syscall.EIO, false, 1},
		"no space for a whole write":       {"short write", syscall.ENOSPC, false, 1},
		"no space for any part of a write": {"write", syscall.ENOSPC, true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := &faultyDisk{}, t.TempDir()
			var failed []error
			var waits *Commit
			s, err := openConfig(Config{Dir: dir, diskOps: d.media(), Failed: func(err error) {
				if waits.finished() {
					t.Error("a caller received an answer before the daemon was ended")
				}
				failed = append(failed, err)
			}})
			if err != nil {
				t.Fatal(err)
			}
			update(t, s, putMachine(0))
			d.set(c.op, c.err)
			release := hold(s)
			waits = s.Submit(putMachine(1))
			release()
			err = waits.Wait(t.Context())
			d.set("", nil)
			if c.clean {
				if bourse.CodeOf(err) != bourse.CodeUnavailable || len(failed) != 0 {
					t.Errorf("got %v, failed %v; want a refused transaction and no failure", err, failed)
				}
				update(t, s, putMachine(1))
			} else {
				if bourse.CodeOf(err) != bourse.CodeTimeout || len(failed) != 1 || !errors.Is(failed[0], c.err) {
					t.Errorf("got %v, failed %v; want an unknown outcome and one failure", err, failed)
				}
				for what, err := range map[string]error{
					"read":  s.View(func(Tx) error { return nil }),
					"sync":  s.Sync(t.Context()),
					"write": s.Update(t.Context(), func(Tx) error { return nil }),
				} {
					if bourse.CodeOf(err) != bourse.CodeTimeout {
						t.Errorf("%s on a failed store: %v, want timeout", what, err)
					}
				}
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			reopened(t, dir, c.after)
		})
	}
}

// TestCheckpointOnAFailedDisk checks that a checkpoint is not repeated after an error other than
// a full disk, because acknowledged data may be lost.
func TestCheckpointOnAFailedDisk(t *testing.T) {
	dir := t.TempDir()
	failed := make(chan error, 1)
	s, err := openConfig(Config{Dir: dir, LogFileSize: 1, Step: func() error { return syscall.EIO }, Failed: func(err error) { failed <- err }})
	if err != nil {
		t.Fatal(err)
	}
	update(t, s, putMachine(0))
	if err := <-failed; !errors.Is(err, syscall.EIO) {
		t.Errorf("failed with %v", err)
	}
	if err := s.View(func(Tx) error { return nil }); bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("read: %v, want timeout", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	reopened(t, dir, 1)
}

// errNoRoom is the error that a full disk returns.
var errNoRoom = fmt.Errorf("write: %w", syscall.ENOSPC)
