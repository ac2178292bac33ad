package store

import (
	"errors"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/fsm/fsmtest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// smallLog is a log size that is sufficient for tests. A store reads and writes its whole log at
// each start, so the default size would make tests slow under the race detector.
const smallLog = 256 << 10

var errKill = errors.New("killed by the test")

// disk is a store directory for fsm's test suite for journals.
type disk struct {
	dir     string
	s       *Store
	kill    uint64
	after   bool
	commits atomic.Uint64
}

func (d *disk) Open(t testing.TB) fsm.Journal {
	d.commits.Store(0)
	kill, after := d.kill, d.after
	s, err := Open(Config{Dir: d.dir, logFileSize: smallLog, Fault: func(stage FaultStage, n uint64) error {
		d.commits.Store(n)
		if n == kill && after == (stage == FaultAfter) {
			return errKill
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	d.s = s
	return s.Journal()
}

func (d *disk) Close(t testing.TB) {
	if err := d.s.View((*Tx).Verify); err != nil && bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("verify: %v", err)
	}
	if err := d.s.Close(); err != nil {
		t.Error(err)
	}
}

func (d *disk) KillAt(n int, after bool) { d.kill, d.after = uint64(n), after }

func (d *disk) Commits() int { return int(d.commits.Load()) }

func TestJournal(t *testing.T) {
	t.Parallel()
	fsmtest.Run(t, func(t testing.TB) fsmtest.Disk { return &disk{dir: t.TempDir()} })
}

// open opens a store in a new directory until the test ends.
func open(t testing.TB) *Store {
	t.Helper()
	return openIn(t, t.TempDir())
}

func openIn(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(Config{Dir: dir, logFileSize: smallLog})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func update(t testing.TB, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.Update(t.Context(), fn); err != nil {
		t.Fatal(err)
	}
}

func view(t testing.TB, s *Store, fn func(*Tx) error) {
	t.Helper()
	if err := s.View(fn); err != nil {
		t.Fatal(err)
	}
}
