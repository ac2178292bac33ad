package kv

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
)

// TestCrashInCheckpoints simulates crashes at random steps of checkpoints, or at commits that
// run concurrently with checkpoints. After several crashes, the store must contain exactly the
// acknowledged transactions.
func TestCrashInCheckpoints(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		dir := t.TempDir()
		want := map[int]int{} // the acknowledged values
		for life := range rapid.IntRange(1, 3).Draw(rt, "lives") {
			dies := uint64(rapid.IntRange(1, 20).Draw(rt, "dies"))
			stage := rapid.SampledFrom([]FaultStage{FaultBefore, FaultAfter, 0}).Draw(rt, "stage")
			var steps atomic.Uint64
			s, err := openConfig(Config{
				Dir: dir, LogFileSize: int64(rapid.IntRange(1, 2000).Draw(rt, "turn")),
				Fault: func(at FaultStage, n uint64) error {
					if at == stage && n == dies {
						return errKill
					}
					return nil
				},
				Step: func() error {
					if stage != 0 || steps.Add(1) != dies {
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
				err := s.Update(t.Context(), func(tx Tx) error {
					if v%5 == 0 {
						return errors.Join(tx.Delete(bucketApps, []byte{byte(k)}), tx.Delete(bucketHolds, []byte{byte(k)}))
					}
					value := uint64Bytes(uint64(v))
					return errors.Join(
						tx.Put(bucketApps, []byte{byte(k)}, value), tx.Put(bucketApps, []byte{byte(k), 'x'}, make([]byte, 300)),
						tx.Put(bucketHolds, []byte{byte(k)}, value),
					)
				})
				if err != nil && (died || stage != FaultAfter) {
					died = true
					continue
				}
				died = err != nil // this commit was durable before the crash
				want[k] = v
				if v%5 == 0 {
					delete(want, k)
				}
			}
			if err := s.Close(); err != nil {
				rt.Fatal(err)
			}
		}
		s, err := openConfig(Config{Dir: dir})
		if err != nil {
			rt.Fatal(err)
		}
		err = s.View(func(tx Tx) error {
			for k := range 7 {
				for _, bucket := range []string{bucketApps, bucketHolds} {
					got := tx.Get(bucket, []byte{byte(k)})
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

// TestReadersDuringCheckpoints checks that readers see whole transactions, including all that
// were acknowledged before they began, even during checkpoints.
func TestReadersDuringCheckpoints(t *testing.T) {
	s, err := openConfig(Config{Dir: t.TempDir(), LogFileSize: 500})
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
				err := s.View(func(tx Tx) error {
					a, b := uint64Of(tx.Get(bucketApps, []byte("a"))), uint64Of(tx.Get(bucketOrders, []byte("b")))
					n := 0
					for range tx.Range(bucketApps, nil) {
						n++
					}
					if a != b || a < least || a > 0 && n != 2 {
						return fmt.Errorf("a is %d, b is %d, with %d keys; %d was acknowledged", a, b, n, least)
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
	for n := range uint64(100) {
		v := uint64Bytes(n + 1)
		update(t, s, func(tx Tx) error {
			return errors.Join(
				tx.Put(bucketApps, []byte("a"), v), tx.Put(bucketOrders, []byte("b"), v),
				tx.Delete(bucketApps, fmt.Appendf(nil, "x%d", n)), tx.Put(bucketApps, fmt.Appendf(nil, "x%d", n+1), []byte{}),
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

// TestCheckpointIsRepeated checks that a failed checkpoint is retried, and that transactions are
// accepted in the meantime.
func TestCheckpointIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const fails = 3
		tries := 0
		s, err := openConfig(Config{Dir: t.TempDir(), LogFileSize: 1, Step: func() error {
			if tries++; tries <= fails {
				return syscall.ENOSPC
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		for n := range fails {
			update(t, s, putMachine(n))
		}
		synctest.Wait()
		if !s.checkpointing.Load() {
			t.Fatal("the checkpoint succeeded")
		}
		time.Sleep(minRetryDelay << fails)
		synctest.Wait()
		if s.checkpointing.Load() {
			t.Error("the checkpoint was not retried")
		}
		view(t, s, func(tx Tx) error {
			if got := countMachines(tx); got != fails {
				t.Errorf("%d machines, want %d", got, fails)
			}
			return verify(tx)
		})
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
}
