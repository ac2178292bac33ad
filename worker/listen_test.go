package worker

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/publish"
)

// Invariant 7: if an order was canceled while its worker was down or cut off from the
// view, the worker destroys its machine once it is back, and never fills the order
// again.
func TestInvariant7CanceledWhileAway(t *testing.T) {
	for name, away := range map[string]func(h *host, during func()){
		"down": func(h *host, during func()) { h.crash(); during(); h.start(nil) },
		"cut off": func(h *host, during func()) {
			v := h.cfg.View.(*memView)
			v.fail(func(context.Context, string, bool) error { return errView })
			during()
			time.Sleep(time.Hour)
			v.fail(nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				v := newMemView()
				h := newHostWith(t, v)
				defer func() { h.crash() }()
				filled, unseen, other := newOrder(t), newOrder(t), h.place()
				if _, r, err := h.claim(t.Context(), &bourse.Claim{Order: *filled}); r != nil || err != nil {
					t.Fatal(r, err)
				}
				away(h, func() { v.cancel(filled.ID, unseen.ID, "not an order") })
				time.Sleep(publish.MaxRetryDelay + time.Second)
				h.checkCanceled(filled, unseen)
				if m := h.get(other.ID); m.State != bourse.StateStarted {
					t.Errorf("a machine of another order is %s", m.State)
				}
				h.checkView(v)
			})
		})
	}
}

// checkCanceled checks that canceled orders have no machines and cannot be claimed.
func (h *host) checkCanceled(orders ...*bourse.Order) {
	h.t.Helper()
	all, err := h.machines.List(h.t.Context(), nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
	if err != nil {
		h.t.Fatal(err)
	}
	for _, o := range orders {
		if slices.ContainsFunc(all, func(m bourse.Machine) bool { return m.Order == o.ID }) {
			h.t.Errorf("canceled order %s has a machine", o.ID)
		}
		if _, r, err := h.claim(h.t.Context(), &bourse.Claim{Order: *o}); err != nil || r == nil || r.Reason != bourse.RefusedCanceled {
			h.t.Errorf("claim of the canceled order: %+v, %v; want a refusal with reason canceled", r, err)
		}
	}
	h.verify()
}

// Invariant 7 also holds if the daemon dies before or after any commit while it carries
// out the cancellations.
func TestInvariant7CanceledWhileAwayAndCrashing(t *testing.T) {
	var commits uint64
	canceledWhileAway(t, func(_ store.FaultStage, n uint64) error { commits = n; return nil })
	if commits < 3 {
		t.Fatalf("canceling takes only %d commits", commits)
	}
	for n := uint64(1); n <= commits; n++ {
		for _, stage := range []store.FaultStage{store.FaultBefore, store.FaultAfter} {
			t.Run(fmt.Sprintf("commit=%d/stage=%d", n, stage), func(t *testing.T) { canceledWhileAway(t, crashAt(stage, n)) })
		}
	}
}

func canceledWhileAway(t *testing.T, fault func(store.FaultStage, uint64) error) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer func() { h.crash() }()
		orders := []*bourse.Order{newOrder(t), newOrder(t), newOrder(t)}
		for _, o := range orders[:2] {
			if _, r, err := h.claim(t.Context(), &bourse.Claim{Order: *o}); r != nil || err != nil {
				t.Fatal(r, err)
			}
		}
		h.crash()
		v.cancel(orders[0].ID, orders[1].ID, orders[2].ID)
		if h.tryStart(fault) == nil {
			time.Sleep(time.Minute)
			h.crash()
		}
		h.start(nil)
		time.Sleep(time.Minute)
		h.checkCanceled(orders...)
		h.checkView(v)
	})
}

// A cancellation that reaches the view while the worker runs is carried out within a
// second, even if the view changes all the time.
func TestACancellationIsCarriedOutSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer h.crash()
		busy, stop := context.WithCancel(t.Context())
		var others sync.WaitGroup
		others.Go(func() {
			for busy.Err() == nil {
				v.has(v.poke)
				time.Sleep(time.Millisecond)
			}
		})
		defer others.Wait()
		defer stop()
		order := newOrder(t)
		if _, r, err := h.claim(t.Context(), &bourse.Claim{Order: *order}); r != nil || err != nil {
			t.Fatal(r, err)
		}
		time.Sleep(time.Minute)
		v.cancel(order.ID)
		time.Sleep(time.Second)
		h.checkCanceled(order)
	})
}

// Apps are not lost as long as one worker that knows of them still has its disk.
func TestAppsOutliveEveryView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer func() { h.crash() }()
		deleted := time.Unix(9, 0).UTC()
		want := map[bourse.AppName]bourse.App{}
		for i := range 600 {
			app := bourse.App{Name: bourse.AppName(fmt.Sprintf("app-%d", i)), ID: fmt.Sprint(i), Org: "personal", CreatedAt: time.Unix(int64(i), 0).UTC()}
			if i%7 == 0 {
				app.DeletedAt = &deleted
			}
			want[app.Name] = app
			v.tell(app)
		}
		v.tell(bourse.App{Name: "No App\x00", ID: "1"})
		time.Sleep(time.Minute)
		v.lose() // while the worker is running
		time.Sleep(time.Minute)
		check := func(when string) {
			t.Helper()
			v.has(func() {
				if diff := cmp.Diff(want, v.apps); diff != "" {
					t.Errorf("%s (-want +view):\n%s", when, diff)
				}
			})
		}
		check("after the view was lost")
		h.crash()
		v.has(func() { clear(v.apps) })
		h.start(nil)
		time.Sleep(time.Minute)
		check("after the view was deleted while the worker was down")
	})
}

// The worker does not write apps that have not changed.
func TestKnownAppsAreNotWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newMemView()
		h := newHostWith(t, v)
		defer func() { h.crash() }()
		v.tell(newOrder(t).App)
		time.Sleep(time.Minute)
		h.crash()
		var commits uint64
		h.start(func(_ store.FaultStage, n uint64) error { commits = n; return nil })
		for range 100 {
			v.has(v.poke)
			time.Sleep(time.Minute)
		}
		h.crash()
		if commits != 0 {
			t.Errorf("%d commits while nothing happened", commits)
		}
	})
}
