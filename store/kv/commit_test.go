package kv

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
)

// hold blocks the store's goroutine until release is called, so that all transactions submitted
// in between share one commit.
func hold(s *DB) (release func()) {
	entered, gate := make(chan struct{}), make(chan struct{})
	s.Submit(func(Tx) error { close(entered); <-gate; return nil })
	<-entered
	return func() { close(gate) }
}

func TestOneCommitForAllThatWait(t *testing.T) {
	var commits atomic.Uint64
	s, err := openConfig(Config{Dir: t.TempDir(), Fault: func(_ FaultStage, n uint64) error { commits.Store(n); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	release := hold(s)
	var all []*Commit
	var order []int
	for n := range 100 {
		all = append(all, s.Submit(func(tx Tx) error {
			order = append(order, n)
			if got := countMachines(tx); got != n {
				return fmt.Errorf("transaction sees %d machines, want the %d of the earlier transactions", got, n)
			}
			return putMachine(n)(tx)
		}))
	}
	release()
	for n, c := range all {
		if err := c.Wait(t.Context()); err != nil {
			t.Errorf("transaction %d: %v", n, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for i, n := range order {
		if i != n {
			t.Fatalf("transactions were executed in the order %v", order)
		}
	}
	if got := commits.Load(); got != 1 {
		t.Errorf("%d commits, want 1", got)
	}
}

func TestBatchIsBounded(t *testing.T) {
	var commits atomic.Uint64
	s, err := openConfig(Config{Dir: t.TempDir(), Fault: func(_ FaultStage, n uint64) error { commits.Store(n); return nil }})
	if err != nil {
		t.Fatal(err)
	}
	release := hold(s)
	for n := range 2*maxBatch + 1 {
		s.Submit(putMachine(n))
	}
	release()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := commits.Load(); got != 3 {
		t.Errorf("%d commits, want 3", got)
	}
}

func TestFailedTransactionChangesNothing(t *testing.T) {
	s := open(t)
	refusal := errors.New("refused")
	release := hold(s)
	put := putMachine
	first := s.Submit(put(1))
	dirty := s.Submit(func(tx Tx) error { return errors.Join(put(2)(tx), refusal) })
	clean := s.Submit(func(Tx) error { return refusal })
	panics := s.Submit(func(tx Tx) error { _ = put(3)(tx); panic("oh no") })
	last := s.Submit(put(4))
	release()
	for _, c := range []*Commit{dirty, clean} {
		if err := c.Wait(t.Context()); !errors.Is(err, refusal) {
			t.Errorf("failing transaction: %v", err)
		}
		<-c.Applied() // also closed after a failure
	}
	if err := panics.Wait(t.Context()); bourse.CodeOf(err) != bourse.CodeInternal {
		t.Errorf("panicking transaction: got %v, want internal", err)
	}
	for _, c := range []*Commit{first, last} {
		if err := c.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	view(t, s, func(tx Tx) error {
		for n, want := range map[int]bourse.Code{1: "", 2: bourse.CodeNotFound, 3: bourse.CodeNotFound, 4: ""} {
			if err := machineOf(tx, machineID(n)); bourse.CodeOf(err) != want {
				t.Errorf("machine %d: %v, want %q", n, err, want)
			}
		}
		return verify(tx)
	})
}

func TestAppliedAndSync(t *testing.T) {
	gate := make(chan struct{})
	s, err := openConfig(Config{Dir: t.TempDir(), Fault: func(stage FaultStage, _ uint64) error {
		if stage == FaultBefore {
			<-gate // simulates a slow disk
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Sync(t.Context()); err != nil {
		t.Errorf("sync of an idle store: %v", err)
	}
	c := s.Submit(putMachine(1))
	<-c.Applied()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Wait(gone); bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("wait with a canceled context: got %v, want canceled", err)
	}
	if err := s.Sync(gone); bourse.CodeOf(err) != bourse.CodeCanceled {
		t.Errorf("sync with a canceled context: got %v, want canceled", err)
	}
	seen := make(chan error, 1)
	go func() {
		if err := s.Sync(t.Context()); err != nil {
			seen <- err
			return
		}
		seen <- s.View(func(tx Tx) error { return machineOf(tx, machineID(1)) })
	}()
	view(t, s, func(tx Tx) error {
		if err := machineOf(tx, machineID(1)); bourse.CodeOf(err) != bourse.CodeNotFound {
			t.Errorf("a reader sees a change that is not durable: got %v, want not_found", err)
		}
		return nil
	})
	close(gate)
	if err := <-seen; err != nil {
		t.Errorf("after the sync: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestRelaxedAfterASync submits a relaxed transaction after a Sync that had to wait for another
// commit. The transaction must become durable even if no other transaction is submitted.
func TestRelaxedAfterASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		landing, land := make(chan struct{}), make(chan struct{})
		s, err := openConfig(Config{Dir: t.TempDir(), Fault: func(at FaultStage, n uint64) error {
			if at == FaultBefore && n == 1 {
				close(landing)
				<-land
			}
			return nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		put := putMachine
		s.Submit(put(1))
		<-landing
		synced := make(chan error, 1)
		go func() { synced <- s.Sync(t.Context()) }()
		synctest.Wait()
		close(land)
		if err := <-synced; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.SubmitRelaxed(put(2)).Wait(ctx); err != nil {
			t.Errorf("the transaction did not become durable: %v", err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRelaxed(t *testing.T) {
	put := putMachine
	for name, then := range map[string]struct {
		do      func(t *testing.T, s *DB) error
		took    time.Duration
		commits uint64
	}{
		"alone":     {func(*testing.T, *DB) error { return nil }, linger, 1},
		"with next": {func(t *testing.T, s *DB) error { return s.Submit(put(2)).Wait(t.Context()) }, 0, 1},
		"synced":    {func(t *testing.T, s *DB) error { return s.Sync(t.Context()) }, 0, 1},
		"closed":    {func(_ *testing.T, s *DB) error { return s.Close() }, 0, 1},
		"two":       {func(_ *testing.T, s *DB) error { s.SubmitRelaxed(put(2)); return nil }, linger, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var commits atomic.Uint64
				s, err := openConfig(Config{Dir: t.TempDir(), Fault: func(_ FaultStage, n uint64) error { commits.Store(n); return nil }})
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				c := s.SubmitRelaxed(put(1))
				synctest.Wait()
				select {
				case <-c.Applied():
					t.Error("the transaction was executed before anything requested it")
				default:
				}
				if err := then.do(t, s); err != nil {
					t.Error(err)
				}
				if err := c.Wait(t.Context()); err != nil {
					t.Error(err)
				}
				if took := time.Since(began); took != then.took {
					t.Errorf("durable after %s, want %s", took, then.took)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				if got := commits.Load(); got != then.commits {
					t.Errorf("%d commits, want %d", got, then.commits)
				}
				time.Sleep(2 * linger) // so that a leftover timer fires after the store was closed
			})
		})
	}
}

// TestSyncWaitsForTheQueue checks that Sync waits for transactions that are queued, not only for
// those that are being executed.
func TestSyncWaitsForTheQueue(t *testing.T) {
	s, err := openConfig(Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	release := hold(s)
	s.Submit(putMachine(1))
	refused := s.Submit(func(Tx) error { return errNoMachine })
	synced := make(chan error, 1)
	go func() { synced <- s.Sync(t.Context()) }()
	release()
	if err := <-synced; err != nil {
		t.Errorf("the store failed because a transaction was refused: %v", err)
	}
	if err := refused.Wait(t.Context()); err == nil {
		t.Error("the transaction was not refused")
	}
	view(t, s, func(tx Tx) error {
		err := machineOf(tx, machineID(1))
		return err
	})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestConcurrentSubmits runs conflicting transactions from many goroutines. The store must contain exactly the
// transactions that were acknowledged, and the sums must be correct.
func TestConcurrentSubmits(t *testing.T) {
	s := open(t)
	var mu sync.Mutex
	acknowledged := map[string]bool{}
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 40 {
				n, name := g*1000+i, fmt.Appendf(nil, "name-%d", (g*7+i*3)%200)
				err := s.Update(t.Context(), func(tx Tx) error {
					taken := tx.Get(bucketApps, name) != nil
					if err := errors.Join(putMachine(n)(tx), tx.Put(bucketApps, name, nil)); err != nil {
						return err
					}
					if taken || i%5 == 0 { // fails after writing
						return errors.New("refused")
					}
					return nil
				})
				mu.Lock()
				acknowledged[machineID(n)] = err == nil
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	view(t, s, func(tx Tx) error {
		stored := 0
		for id, want := range acknowledged {
			err := machineOf(tx, id)
			if got := err == nil; got != want {
				t.Errorf("machine %s: stored is %t, but acknowledged is %t", id, got, want)
			}
			if want {
				stored++
			}
		}
		sum := uint64Of(tx.Get(bucketCommitted, []byte("memory")))
		if sum != uint64(amountPerMachine*stored) || stored == 0 || stored == len(acknowledged) {
			t.Errorf("the committed sum is %d, with %d of %d machines stored", sum, stored, len(acknowledged))
		}
		return verify(tx)
	})
}
