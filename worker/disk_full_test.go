package worker

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver/drivertest"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// The disk becomes full just before the worker records that a claim's machine has started, and the daemon dies. The
// claim was already recorded, so the next daemon fills the order. If it refused, the broker would also fill the order
// on another worker (invariant 7).
func TestADiskThatIsFullWhenAClaimEnds(t *testing.T) {
	for name, order := range map[string]func(*testing.T) *bourse.Order{
		"machine":   func(t *testing.T) *bourse.Order { return newOrder(t) },
		"cold task": func(t *testing.T) *bourse.Order { return cold(t, "one", "cat") },
		"volume":    func(t *testing.T) *bourse.Order { return newVolumeOrder(t) },
	} {
		for _, fails := range []bool{false, true} { // whether the first attempt to start fails
			t.Run(fmt.Sprintf("%s, fails %t", name, fails), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { fullAtEnd(t, order(t), fails) })
			})
		}
	}
}

func fullAtEnd(t *testing.T, order *bourse.Order, fails bool) {
	var starts, full atomic.Int64
	start := func(call string) error {
		if call != "Start" && call != "Create" {
			return nil
		}
		if starts.Add(1) == 1 && fails {
			return bourse.Errorf(bourse.CodeInvalid, "broken")
		}
		return nil
	}
	vols := volumetest.NewHost()
	vols.SetFault(func(call, _ string) error { return start(call) })
	h := newHostDown(t, withVolumes(vols))
	h.mem.SetHooks(drivertest.Hooks{Before: func(_ context.Context, c drivertest.Call) error { return start(c.Op) }})
	h.start(func(stage store.FaultStage, _ uint64) error {
		if stage != store.FaultBefore || starts.Load() == 0 {
			return nil
		}
		if full.Add(1) == 1 {
			synctest.Wait() // until the claim waits for this commit
		}
		return syscall.ENOSPC
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	claim := &bourse.Claim{Order: *order}
	fill, refusal, err := h.claim(ctx, claim)
	if refusal != nil || fill == nil && bourse.CodeOf(err) != bourse.CodeTimeout {
		t.Errorf("claim: fill %+v, refusal %+v, error %v; want a fill, or an unknown outcome", fill, refusal, err)
	}
	h.crash()
	if full.Load() == 0 {
		t.Fatal("the disk was not full")
	}
	h.start(nil)
	defer h.crash()
	if _, refusal, err = h.claim(t.Context(), claim); refusal != nil || err != nil {
		t.Errorf("repeated claim: refusal %+v, error %v; want a fill", refusal, err)
	}
	h.verify()
}

// A warm task's claim that waits because the disk is full has recorded nothing. It is therefore refused, and another
// worker may fill the order. If the order was filled earlier, that result is still found.
func TestAFullDiskAndAWarmTask(t *testing.T) {
	for _, filled := range []bool{false, true} {
		t.Run(fmt.Sprintf("filled %t", filled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var full atomic.Bool
				h := newHostDown(t, nil)
				h.start(func(stage store.FaultStage, _ uint64) error {
					if stage != store.FaultBefore || !full.Load() {
						return nil
					}
					synctest.Wait() // until the claim waits for this commit
					return syscall.ENOSPC
				})
				defer h.crash()
				order := call(t, "one", 1)
				record := func(tx *store.Tx) error {
					rec := store.OrderRecord{ID: order.ID, Task: &store.TaskRecord{App: order.App.Name, AppID: order.App.ID}}
					rec.Task.Result.Order = order.ID
					if err := tx.RecordTask(rec); err != nil {
						return err
					}
					_, err := tx.RecordTaskEnd(order.ID, bourse.TaskResult{Order: order.ID, End: bourse.TaskAnswered}, time.Now())
					return err
				}
				if filled {
					if err := h.store.Update(t.Context(), record); err != nil {
						t.Fatal(err)
					}
				}
				full.Store(true)
				pending := h.store.Submit(func(tx *store.Tx) error {
					return tx.PutOrder(store.OrderRecord{ID: bourse.NewOrderID(), Canceled: true})
				})
				fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
				if filled {
					if err != nil || refusal != nil || !fill.Repeated || fill.Task.End != bourse.TaskAnswered {
						t.Errorf("claim: fill %+v, refusal %+v, error %v; want the earlier result", fill, refusal, err)
					}
				} else if err != nil || refusal == nil || refusal.Reason != bourse.RefusedUnavailable {
					t.Errorf("claim: refusal %+v, error %v; want %s", refusal, err, bourse.RefusedUnavailable)
				}
				if err := pending.Wait(t.Context()); bourse.CodeOf(err) != bourse.CodeUnavailable {
					t.Errorf("the disk was not full: %v", err)
				}
			})
		})
	}
}
