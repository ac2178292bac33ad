package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

// TestCrashInCheckpoints lets the process die at any part of any checkpoint, or
// at any commit beside them, again and again; what is there afterwards is what
// was acknowledged.
func TestCrashInCheckpoints(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		want := map[int]int{} // what was acknowledged
		for life := range rapid.IntRange(1, 3).Draw(rt, "lives") {
			dies := uint64(rapid.IntRange(1, 20).Draw(rt, "dies"))
			stage := rapid.SampledFrom([]FaultStage{FaultBefore, FaultAfter, 0}).Draw(rt, "stage")
			var parts atomic.Uint64
			s, err := Open(Config{
				Dir: dir, turn: int64(rapid.IntRange(1, 2000).Draw(rt, "turn")),
				Fault: func(at FaultStage, n uint64) error {
					if at == stage && n == dies {
						return errKill
					}
					return nil
				},
				part: func() error {
					if stage != 0 || parts.Add(1) != dies {
						return nil
					}
					return errKill
				},
			})
			if errors.Is(err, errKill) {
				continue
			}
			if err != nil {
				rt.Fatal(err)
			}
			died := false
			for i := range rapid.IntRange(1, 20).Draw(rt, "commits") {
				k, v := i%7, 1000*life+i
				err := s.Update(t.Context(), func(tx *Tx) error {
					if v%5 == 0 {
						return errors.Join(tx.delete(bucketApps, []byte{byte(k)}), tx.delete(bucketHolds, []byte{byte(k)}))
					}
					value := uint64Bytes(uint64(v))
					return errors.Join(
						tx.put(bucketApps, []byte{byte(k)}, value), tx.put(bucketApps, []byte{byte(k), 'x'}, make([]byte, 300)),
						tx.put(bucketHolds, []byte{byte(k)}, value), // a small bucket
					)
				})
				if err != nil && (died || stage != FaultAfter) {
					died = true
					continue
				}
				died = err != nil // at a commit that was durable already
				want[k] = v
				if v%5 == 0 {
					delete(want, k)
				}
			}
			if err := s.Close(); err != nil {
				rt.Fatal(err)
			}
		}
		s, err := Open(Config{Dir: dir})
		if err != nil {
			rt.Fatal(err)
		}
		err = s.View(func(tx *Tx) error {
			for k := range 7 {
				for _, bucket := range []string{bucketApps, bucketHolds} {
					got := tx.get(bucket, []byte{byte(k)})
					if v, ok := want[k]; ok != (got != nil) || ok && binary.BigEndian.Uint64(got) != uint64(v) {
						return fmt.Errorf("key %d of %s is %x, want %d (%t)", k, bucket, got, v, ok)
					}
				}
			}
			return nil
		})
		if err := errors.Join(err, s.Close()); err != nil {
			rt.Fatal(err)
		}
	})
}

// Readers see whole transactions, each at least as new as what was acknowledged
// before they began, whatever checkpoints do meanwhile.
func TestReadersDuringCheckpoints(t *testing.T) {
	s, err := Open(Config{Dir: t.TempDir(), turn: 500})
	if err != nil {
		t.Fatal(err)
	}
	var acknowledged atomic.Uint64
	done := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				least := acknowledged.Load()
				err := s.View(func(tx *Tx) error {
					a, b := uint64Of(tx.get(bucketApps, []byte("a"))), uint64Of(tx.get(bucketOrders, []byte("b")))
					n := 0
					for range tx.from(bucketApps, nil) {
						n++
					}
					if a != b || a < least || a > 0 && n != 2 {
						return fmt.Errorf("a %d, b %d, %d keys; %d was acknowledged", a, b, n, least)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range uint64(300) {
		v := uint64Bytes(n + 1)
		update(t, s, func(tx *Tx) error {
			return errors.Join(
				tx.put(bucketApps, []byte("a"), v), tx.put(bucketOrders, []byte("b"), v),
				tx.delete(bucketApps, fmt.Appendf(nil, "x%d", n)), tx.put(bucketApps, fmt.Appendf(nil, "x%d", n+1), []byte{}),
			)
		})
		acknowledged.Store(n + 1)
	}
	close(done)
	wg.Wait()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A checkpoint that fails is tried again; nobody is refused meanwhile.
func TestCheckpointIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fails = 3
		tries := 0
		s, err := Open(Config{Dir: t.TempDir(), turn: 1, part: func() error {
			if tries++; tries <= fails {
				return syscall.ENOSPC
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range fails {
			update(t, s, func(tx *Tx) error { return tx.PutMachine(machine(n, bourse.StateCreated)) })
		}
		synctest.Wait()
		if s.shown().moving == nil {
			t.Fatal("the checkpoint has succeeded")
		}
		time.Sleep(retryFirst << fails)
		synctest.Wait()
		if s.shown().moving != nil {
			t.Error("the checkpoint was not repeated")
		}
		view(t, s, func(tx *Tx) error {
			if got := tx.LivingOf(bourse.App{Name: "default"}); got != fails {
				t.Errorf("%d machines, want %d", got, fails)
			}
			return tx.Verify()
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
