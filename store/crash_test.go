package store

import (
	"fmt"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestCrashAtEveryCommit simulates a crash immediately before and after each commit becomes durable, while machines
// change their states. It checks that the file contains exactly the acknowledged commits, or one more.
func TestCrashAtEveryCommit(t *testing.T) {
	t.Parallel()
	life := []bourse.State{
		bourse.StateCreated, bourse.StateStarting, bourse.StateStarted, bourse.StateStopping, bourse.StateStopped,
		bourse.StateDestroying, bourse.StateDestroyed,
	}
	for n := 1; n <= 2*len(life); n++ {
		for _, stage := range []FaultStage{FaultBefore, FaultAfter} {
			t.Run(fmt.Sprintf("commit %d stage %d", n, stage), func(t *testing.T) {
				dir := t.TempDir()
				s, err := Open(Config{Dir: dir, logFileSize: smallLog, Fault: func(at FaultStage, c uint64) error {
					if at == stage && c == uint64(n) {
						return errKill
					}
					return nil
				}})
				if err != nil {
					t.Fatal(err)
				}
				acknowledged := live(t, s, life)
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if want := n - 1; acknowledged != want {
					t.Fatalf("%d transactions acknowledged, want %d", acknowledged, want)
				}
				durable := n - 1
				if stage == FaultAfter {
					durable = n
				}
				checkLife(t, dir, life, durable)
			})
		}
	}
}

// live moves two machines alternately through the states in life, with one transaction for each state. It stops when a
// transaction fails, and returns the number of transactions that succeeded.
func live(t *testing.T, s *Store, life []bourse.State) int {
	t.Helper()
	for i, state := range life {
		for m := range 2 {
			err := s.Update(t.Context(), func(tx *Tx) error {
				x := machine(m, state)
				if state != bourse.StateStarted {
					x.Takes = nil
				}
				if _, err := tx.Append(Entry{Kind: KindMachine, ID: string(x.ID), Event: bourse.Event{Type: "step", State: state}}); err != nil {
					return err
				}
				return tx.PutMachine(x)
			})
			if err != nil {
				if bourse.CodeOf(err) != bourse.CodeTimeout {
					t.Errorf("transaction: got %v, want timeout", err)
				}
				if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutIdentity(Identity{}) }); bourse.CodeOf(err) != bourse.CodeTimeout {
					t.Errorf("transaction after the crash: got %v, want timeout", err)
				}
				return 2*i + m
			}
		}
	}
	return 2 * len(life)
}

// checkLife checks that the file contains the effects of exactly the first durable transactions
// of live.
func checkLife(t *testing.T, dir string, life []bourse.State, durable int) {
	t.Helper()
	s, err := Open(Config{Dir: dir, logFileSize: smallLog})
	if err != nil {
		t.Fatal(err)
	}
	view(t, s, func(tx *Tx) error {
		if log := list(t, entries.all(tx)); len(log) != durable {
			t.Errorf("%d log entries, want %d", len(log), durable)
		}
		var memory int64
		for m := range 2 {
			steps := (durable + 1 - m) / 2
			got, err := tx.Machine(machineID(m))
			if steps == 0 {
				if bourse.CodeOf(err) != bourse.CodeNotFound {
					t.Errorf("machine %d: %v, want none", m, err)
				}
				continue
			}
			if err != nil || got.State != life[steps-1] {
				t.Errorf("machine %d is %q (%v), want %q", m, got.State, err, life[steps-1])
			}
			if got.State == bourse.StateStarted {
				memory += 256
			}
		}
		if sum, err := tx.Committed(); err != nil || sum.Of(bourse.ResourceMemory) != memory {
			t.Errorf("committed %v (%v), want %d of memory", sum, err, memory)
		}
		return tx.Verify()
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
