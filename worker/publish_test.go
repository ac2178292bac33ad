package worker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/publish"
)

// newHostWith returns a host with large capacity whose daemons publish to v.
func newHostWith(t testing.TB, v *memView) *host {
	t.Helper()
	return newHost(t, func(c *Config) {
		c.View = v
		c.Capacity.CPUs, c.Capacity.Memory, c.Capacity.Disk = 4000, 1<<30, 1<<30
	})
}

// checkView checks that the view contains exactly the store's records.
func (h *host) checkView(v *memView) {
	h.t.Helper()
	want := map[bourse.MachineID]bourse.Machine{}
	all, err := h.machines.List(h.t.Context(), nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
	if err != nil {
		h.t.Fatal(err)
	}
	for _, m := range all {
		m.LastEvents = m.LastEvents[:min(len(m.LastEvents), publish.Events)]
		want[m.ID] = m
	}
	facts, err := h.Facts()
	if err != nil {
		h.t.Fatal(err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if diff := cmp.Diff(want, v.machines, byAddress); diff != "" {
		h.t.Errorf("the store's machines and the view's (-store +view):\n%s", diff)
	}
	facts.Load = 0 // the load of the real host may change at any time
	if v.facts == nil {
		h.t.Errorf("the view does not contain the worker's facts")
	} else if heard := *v.facts; true {
		heard.Load = 0
		if publish.IsUrgent(&facts, &heard) {
			h.t.Errorf("the view has facts %+v, the worker %+v", heard, facts)
		}
	}
}

// A change is published even if its caller has stopped waiting before the change was
// durable.
func TestAChangeIsPublishedAfterItsCallerHasLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer h.crash()
		id := h.place().ID
		h.crash()
		h.start(func(stage store.FaultStage, _ uint64) error {
			if stage == store.FaultBefore {
				time.Sleep(time.Second) // a slow disk
			}
			return nil
		})
		time.Sleep(time.Minute)
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, err := h.machines.Cordon(ctx, id, fabric.MachineAction{}, true); err == nil {
			t.Fatal("the caller did not stop waiting early, so the test proves nothing")
		}
		time.Sleep(time.Minute)
		if m := h.get(id); !m.Cordoned {
			t.Fatal("the machine was never cordoned, so the test proves nothing")
		}
		h.checkView(v)
	})
}

func TestABurstIsPublishedInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		v := newMemView()
		h := newHostWith(t, v)
		defer h.crash()
		time.Sleep(time.Minute)
		before := v.counted()
		var wg sync.WaitGroup
		for range n {
			wg.Go(func() { h.place() })
		}
		wg.Wait()
		time.Sleep(time.Second)
		h.checkView(v)
		after := v.counted()
		if got := after.updates - before.updates; got > n/publish.Batch+4 {
			t.Errorf("%d updates of %d machines", got, n)
		}
		if got := after.machines - before.machines; got > n+n/10 {
			t.Errorf("%d machines were published, want each of %d about once", got, n)
		}
		if after.largest > publish.Batch {
			t.Errorf("an update has %d machines, want at most %d", after.largest, publish.Batch)
		}
	})
}

// A machine that is destroyed before it could be published is never published.
func TestAShortLivedMachineIsNotPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer h.crash()
		time.Sleep(time.Minute)
		before := v.counted()
		m := h.place()
		h.must(h.machines.Destroy(t.Context(), m.ID, fabric.MachineAction{Force: true}))
		_, _ = h.machines.Cordon(t.Context(), "abcdef01234567", fabric.MachineAction{}, true) // this machine does not exist
		time.Sleep(time.Minute)
		after := v.counted()
		if after.machines != before.machines || after.gone != before.gone {
			t.Errorf("%d machines were published and %d removed, want none", after.machines-before.machines, after.gone-before.gone)
		}
	})
}

// A view that hangs does not delay callers, and the worker only stores a bounded list
// of ids. Once the view works again, it receives everything.
func TestAViewThatHangsDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		var hangs atomic.Bool
		v.fail(func(ctx context.Context, _ string, _ bool) error {
			if hangs.Load() {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		})
		h := newHostWith(t, v)
		defer h.crash()
		h.place()
		time.Sleep(time.Minute)
		hangs.Store(true)
		begin := time.Now()
		var kept []bourse.MachineID
		for range 100 {
			kept = append(kept, h.place().ID)
		}
		h.must(h.machines.Destroy(t.Context(), kept[0], fabric.MachineAction{Force: true}))
		if took := time.Since(begin); took > 0 {
			t.Errorf("claims took %s while the view was hanging", took)
		}
		for i := range 10_000 { // more machines than an outbox notes; see package publish
			h.state.Machines.Applied(bourse.MachineID(fmt.Sprintf("%014x", i)))
		}
		time.Sleep(2 * publish.CheckInterval)
		hangs.Store(false)
		time.Sleep(publish.Timeout + publish.MaxRetryDelay + time.Second)
		h.checkView(v)
	})
}

func TestALostViewIsFilledAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer h.crash()
		for range 300 {
			h.place()
		}
		v.tell(newOrder(t).App) // the view needs the app as signed by a broker, since the copy in a claim has no proof
		time.Sleep(time.Minute)
		v.lose()
		time.Sleep(time.Second)
		h.checkView(v)
		v.has(func() {
			if len(v.apps) != 1 {
				t.Errorf("the view has %d apps, want only the machines' app", len(v.apps))
			}
		})
	})
}

// Rows in the view that the worker's store does not contain are removed, for example
// after the worker's disk was replaced.
func TestTheStoreWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		for i := range 300 { // no daemon uses v yet
			id := bourse.MachineID(fmt.Sprintf("%014x", i))
			v.machines[id] = bourse.Machine{ID: id, State: bourse.StateStarted}
		}
		h := newHostWith(t, v)
		defer h.crash()
		m := h.place()
		time.Sleep(time.Minute)
		h.checkView(v)
		// The worker is not notified of this change, but its regular check finds it.
		v.has(func() { v.machines[m.ID] = bourse.Machine{ID: m.ID, State: bourse.StateFailed} })
		time.Sleep(publish.CheckInterval)
		h.checkView(v)
	})
}

func TestUnacceptableMachinesAreLeftOutOfTheView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		v.refused = func(m *bourse.Machine) bool { return m.Config.Env["poison"] != "" } // no daemon uses v yet
		h := newHostWith(t, v)
		defer h.crash()
		for i := range 50 {
			h.place(func(o *bourse.Order) {
				if i%10 == 5 {
					o.Config.Env = map[string]string{"poison": "1"}
				}
			})
		}
		for range 2 {
			time.Sleep(time.Minute)
			v.has(func() {
				if got := len(v.machines); got != 45 {
					t.Errorf("the view has %d machines, want 45: all except the 5 that it does not accept", got)
				}
			})
			v.lose() // publish everything again
		}
	})
}

func TestAWorkerThatLeavesSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer h.crash()
		h.place()
		if err := h.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.has(func() {
			if !v.leaving {
				t.Error("the view does not show that the worker has left")
			}
		})
		if err := h.DestroyAll(t.Context()); err != nil {
			t.Fatal(err)
		}
		v.has(func() {
			if len(v.machines) != 0 {
				t.Errorf("the view still has %d destroyed machines", len(v.machines))
			}
		})
		h.crash()
		h.start(nil)
		time.Sleep(time.Second)
		v.has(func() {
			if v.leaving {
				t.Error("the worker is back, but the view shows it as leaving")
			}
		})
		v.fail(func(context.Context, string, bool) error { return errView })
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h.Leave(ctx); err == nil {
			t.Error("Leave succeeded although the view fails")
		}
	})
}
