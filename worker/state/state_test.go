package state

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

func open(t *testing.T, fault func(store.FaultStage, uint64) error) *State {
	t.Helper()
	s, err := store.Open(store.Config{Dir: t.TempDir(), Fault: fault})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return New(store.Identity{Worker: "w1", Tag: 1, Region: "gru"}, s, nil)
}

// A change to a run's state is reported as a change to its machine or volume.
func TestRunsAreReportedAsChanges(t *testing.T) {
	s := open(t, nil)
	machine, volume := bourse.MachineID("m"), bourse.VolumeID("v")
	for resource, changed := range map[string]<-chan struct{}{
		OfMachine(machine):       s.Machines.Next(machine),
		OfRestart(machine + "2"): s.Machines.Next(machine + "2"),
		OfVolume(volume):         s.Volumes.Next(volume),
	} {
		s.observe(fsm.Record{Resource: resource})
		select {
		case <-changed:
		default:
			t.Errorf("a run on %s notifies nobody", resource)
		}
	}
}

// If a caller stops waiting for its transaction, the transaction may still succeed, so
// followers are notified. A failed transaction changes nothing.
func TestCommitReportsWhatMayHaveChanged(t *testing.T) {
	s := open(t, nil)
	var sure, unsure int
	s.Machines.Follow(func(_ bourse.MachineID, is bool) {
		if is {
			unsure++
		} else {
			sure++
		}
	})
	check := func(name string, wantSure, wantUnsure int) {
		t.Helper()
		if sure != wantSure || unsure != wantUnsure {
			t.Errorf("%s: %d certain and %d unsure changes, want %d and %d", name, sure, unsure, wantSure, wantUnsure)
		}
		sure, unsure = 0, 0
	}
	nothing := func(*store.Tx) error { return nil }
	if err := s.Commit(t.Context(), "m", nothing); err != nil {
		t.Fatal(err)
	}
	check("a change", 1, 0)

	wrong := errors.New("wrong")
	change := s.Machines.Next("m")
	if err := s.Commit(t.Context(), "m", func(*store.Tx) error { return wrong }); !errors.Is(err, wrong) {
		t.Fatal(err)
	}
	<-change // callers that wait are notified as well, and read the record again
	check("a failure", 0, 0)

	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Commit(ctx, "m", func(*store.Tx) error { cancel(); return wrong }); err == nil {
		t.Fatal("a failing transaction succeeded")
	}
	check("a caller that stopped waiting", 0, 1)
}

// A function started by Go can run until the daemon stops, and Wait waits for it.
func TestGoEndsWithTheDaemon(t *testing.T) {
	s := open(t, nil)
	life, end := context.WithCancel(t.Context())
	s.SetContext(life)
	ended := false
	s.Go(func(life context.Context) {
		<-life.Done()
		ended = true
	})
	end()
	s.Wait()
	if !ended {
		t.Error("Wait returned too early")
	}
}

// The versions of a record increase, even if the clock is set back.
func TestVersionsGrow(t *testing.T) {
	now := time.Now()
	for last, want := range map[time.Time]time.Time{
		now.Add(-time.Second): now,
		now:                   now.Add(1),
		now.Add(time.Second):  now.Add(time.Second + 1),
	} {
		if got := NextVersion(last, now); !got.Equal(want) {
			t.Errorf("the version after %s at %s is %s, want %s", last, now, got, want)
		}
	}
}
