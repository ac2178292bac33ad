package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
)

func holdKey(n int) bourse.ReservationKey {
	return bourse.ReservationKey(fmt.Sprintf("01J0000000000000000000000%d", n))
}

// aHold returns the hold for the n-th order of a reservation. The hold expires at until, in
// seconds since 1970.
func aHold(key, n int, until int64, takes, left int64) *bourse.Hold {
	amounts := func(n int64) bourse.Amounts { return bourse.Amounts{{Resource: "memory", Amount: n}} }
	return &bourse.Hold{
		Order: holdKey(key).Order(n), Reservation: holdKey(key), Index: n, App: "app", Worker: "w1", Tag: 7, Region: "gru",
		Takes: amounts(takes), Remaining: amounts(left), CreatedAt: time.Unix(0, 0).UTC(), ExpiresAt: time.Unix(until, 0).UTC(),
	}
}

// TestHoldModel checks that indexes and sums match the holds after any sequence of changes, and
// that expired holds do not count.
func TestHoldModel(t *testing.T) {
	t.Parallel()
	s := open(t)
	rapid.Check(t, func(rt *rapid.T) {
		empty(rt, s, bucketHolds, bucketHoldOf, bucketHoldEnd, bucketCommitted)
		model := map[bourse.OrderID]bourse.Hold{}
		at := func(rt *rapid.T) time.Time { return time.Unix(rapid.Int64Range(-5, 5).Draw(rt, "at"), 0) }
		rt.Repeat(map[string]func(*rapid.T){
			"put": func(rt *rapid.T) {
				takes := rapid.Int64Range(0, 4).Draw(rt, "takes")
				h := aHold(rapid.IntRange(0, 1).Draw(rt, "key"), rapid.IntRange(0, 2).Draw(rt, "n"), rapid.Int64Range(-5, 5).Draw(rt, "until"), takes, rapid.Int64Range(0, 5).Draw(rt, "left"))
				err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutHold(h) })
				if (err == nil) != (h.Remaining[0].Amount <= takes) {
					rt.Fatalf("put %+v: %v", h, err)
				}
				if err == nil {
					model[h.Order] = *h
				}
			},
			"delete": func(rt *rapid.T) {
				id := holdKey(rapid.IntRange(0, 1).Draw(rt, "key")).Order(rapid.IntRange(0, 2).Draw(rt, "n"))
				if err := s.Update(t.Context(), func(tx *Tx) error { return tx.DeleteHold(id) }); err != nil {
					rt.Fatal(err)
				}
				delete(model, id)
			},
			"expire": func(rt *rapid.T) {
				now := at(rt)
				var n int
				if err := s.Update(t.Context(), func(tx *Tx) (err error) { n, err = tx.ExpireHolds(now); return err }); err != nil {
					rt.Fatal(err)
				}
				before := len(model)
				maps.DeleteFunc(model, func(_ bourse.OrderID, h bourse.Hold) bool { return !h.ExpiresAt.After(now) })
				if before-len(model) != n {
					rt.Fatalf("%d holds have expired, want %d", n, before-len(model))
				}
			},
			"": func(rt *rapid.T) {
				now := at(rt)
				if err := s.View(func(tx *Tx) error { return compareHolds(tx, model, now) }); err != nil {
					rt.Fatal(err)
				}
			},
		})
	})
}

func compareHolds(tx *Tx, model map[bourse.OrderID]bourse.Hold, now time.Time) error {
	var sum, sumNow int64
	var first time.Time
	got := map[bourse.OrderID]bourse.Hold{}
	for key := range 2 {
		of, err := tx.HoldsOf(holdKey(key).All())
		if err != nil {
			return err
		}
		for _, h := range of {
			got[h.Order] = h
		}
	}
	if diff := cmp.Diff(model, got); diff != "" {
		return fmt.Errorf("holds (-want +got):\n%s", diff)
	}
	for _, h := range model {
		sum += h.Remaining[0].Amount
		if h.ExpiresAt.After(now) {
			sumNow += h.Remaining[0].Amount
		}
		if first.IsZero() || h.ExpiresAt.Before(first) {
			first = h.ExpiresAt
		}
	}
	all, err := tx.Committed()
	if err != nil || all.Of("memory") != sum {
		return fmt.Errorf("committed %v (%w), want %d", all, err, sum)
	}
	live, err := tx.CommittedAt(now)
	if err != nil || live.Of("memory") != sumNow {
		return fmt.Errorf("committed at %s: %v (%w), want %d", now, live, err, sumNow)
	}
	if at, ok := tx.NextExpiry(); ok != (len(model) > 0) || ok && !at.Equal(first) {
		return fmt.Errorf("the next hold expires at %s (%t), want %s", at, ok, first)
	}
	return tx.Verify()
}

// TestCommittedAtDeletesExpiredHolds checks that CommittedAt deletes expired holds in a read-write transaction.
func TestCommittedAtDeletesExpiredHolds(t *testing.T) {
	s := open(t)
	update(t, s, func(tx *Tx) error { return tx.PutHold(aHold(0, 0, 10, 4, 3)) })
	update(t, s, func(tx *Tx) error {
		if sum, err := tx.CommittedAt(time.Unix(9, 0)); err != nil || sum.Of("memory") != 3 {
			t.Errorf("at 9: %v, %v; want 3", sum, err)
		}
		sum, err := tx.CommittedAt(time.Unix(10, 0))
		if len(sum) != 0 {
			t.Errorf("at 10: %v, want nothing", sum)
		}
		return err
	})
	view(t, s, func(tx *Tx) error {
		if _, ok, err := tx.Hold(holdKey(0).Order(0)); ok || err != nil {
			t.Errorf("after the hold expired: found %t, %v", ok, err)
		}
		return tx.Verify()
	})
}

func TestHostileHolds(t *testing.T) {
	s := open(t)
	for name, change := range map[string]func(*bourse.Hold){
		"no order":           func(h *bourse.Hold) { h.Order = "" },
		"no reservation":     func(h *bourse.Hold) { h.Reservation = "a\x00b" },
		"no app":             func(h *bourse.Hold) { h.App = "" },
		"negative takes":     func(h *bourse.Hold) { h.Takes[0].Amount = -1; h.Remaining = nil },
		"more than possible": func(h *bourse.Hold) { h.Takes[0].Amount = bourse.MaxAmount + 1 },
		"negative left":      func(h *bourse.Hold) { h.Remaining[0].Amount = -1 },
		"left of another":    func(h *bourse.Hold) { h.Remaining[0].Resource = "cpu" },
	} {
		h := aHold(0, 0, 10, 4, 3)
		change(h)
		if err := s.Update(t.Context(), func(tx *Tx) error { return tx.PutHold(h) }); bourse.CodeOf(err) != bourse.CodeInternal {
			t.Errorf("%s: %v, want internal", name, err)
		}
	}
	view(t, s, (*Tx).Verify)
}

// TestPruneRetainsOrdersOfHolds checks that an order is retained as long as its hold exists. Otherwise a late retry of
// the order would create a second hold.
func TestPruneRetainsOrdersOfHolds(t *testing.T) {
	s := open(t)
	old := time.Unix(0, 0).UTC()
	h := aHold(0, 0, 1<<33, 1, 1)
	update(t, s, func(tx *Tx) error {
		if err := tx.PutOrder(OrderRecord{ID: h.Order, Held: true, At: old}); err != nil {
			return err
		}
		return tx.PutHold(h)
	})
	known := func() (ok bool) {
		if _, err := s.Prune(context.Background(), time.Unix(1e6, 0)); err != nil {
			t.Fatal(err)
		}
		view(t, s, func(tx *Tx) (err error) {
			_, ok, err = tx.Order(h.Order)
			return err
		})
		return ok
	}
	if !known() {
		t.Error("the order was pruned while its hold existed")
	}
	update(t, s, func(tx *Tx) error { return tx.DeleteHold(h.Order) })
	if known() {
		t.Error("the order was not pruned after its hold had expired")
	}
}

// TestCrashAtEveryCommitOfAHold is like TestCrashAtEveryCommit, for a hold that is created,
// extended, partly and then completely used, and expires.
func TestCrashAtEveryCommitOfAHold(t *testing.T) {
	life := []func(*Tx) error{
		func(tx *Tx) error { return tx.PutHold(aHold(0, 0, 10, 4, 4)) },
		func(tx *Tx) error { return tx.PutHold(aHold(0, 0, 20, 4, 4)) },
		func(tx *Tx) error { return tx.PutHold(aHold(0, 0, 20, 4, 1)) },
		func(tx *Tx) error { return tx.PutHold(aHold(0, 0, 20, 4, 0)) },
		func(tx *Tx) error { _, err := tx.CommittedAt(time.Unix(20, 0)); return err },
	}
	left := []int64{0, 4, 4, 1, 0, 0} // amounts left after each number of commits
	ends := []int64{0, 10, 20, 20, 20, 0}
	for n := 1; n <= len(life); n++ {
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
				done := slices.IndexFunc(life, func(step func(*Tx) error) bool { return s.Update(t.Context(), step) != nil })
				if err := s.Close(); err != nil || done != n-1 {
					t.Fatalf("%d steps acknowledged (%v), want %d", done, err, n-1)
				}
				if stage == FaultAfter {
					done++
				}
				if s, err = Open(Config{Dir: dir, logFileSize: smallLog}); err != nil {
					t.Fatal(err)
				}
				view(t, s, func(tx *Tx) error {
					if sum, err := tx.Committed(); err != nil || sum.Of("memory") != left[done] {
						t.Errorf("committed %v (%v), want %d", sum, err, left[done])
					}
					if at, ok := tx.NextExpiry(); ok != (ends[done] != 0) || ok && at.Unix() != ends[done] {
						t.Errorf("the hold expires at %s (%t), want %d", at, ok, ends[done])
					}
					return tx.Verify()
				})
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}
