package worker

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// A cordoned worker refuses all new orders, even after crashes. Its existing machines, volumes and holds are not
// affected.
func TestACordonedWorkerRefusesOrders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, _ := newVolumeHost(t)
		defer func() { h.crash() }()
		ctx := t.Context()
		order := newOrder(t)
		before, _, err := h.claim(ctx, &bourse.Claim{Order: *order})
		if err != nil || before == nil {
			t.Fatal(err)
		}
		v := h.placeVolume()
		key := bourse.ReservationKey(bourse.NewOrderID())
		hold := h.hold(newHoldOrder(t, key, 0, time.Hour))
		facts, err := h.cordon(ctx, fabric.CordonRequest{Cordon: true, By: "ada"})
		if err != nil || facts.Cordon == nil || facts.Cordon.By != "ada" || facts.Cordon.At.IsZero() {
			t.Fatalf("cordoned: %+v, %v", facts.Cordon, err)
		}
		since := facts.Cordon.At
		h.crash()
		h.start(nil)
		time.Sleep(time.Minute) // virtual time: a second cordon must not change the time of the first
		if facts, err = h.cordon(ctx, fabric.CordonRequest{Cordon: true, By: "bob"}); err != nil || !facts.Cordon.At.Equal(since) || facts.Cordon.By != "ada" {
			t.Errorf("cordoned again: %+v, %v; want the first cordon", facts.Cordon, err)
		}
		for what, o := range map[string]*bourse.Order{
			"a machine":                   newOrder(t),
			"an order with a volume here": newOrder(t, mounts(v.ID)),
			"an order with a reservation": newOrder(t, fromHold(hold)),
			"a reservation":               newHoldOrder(t, bourse.ReservationKey(bourse.NewOrderID()), 0, time.Hour),
			"a task":                      cold(t, "payload", "cat"),
			"a volume":                    newVolumeOrder(t),
			"a fork":                      newVolumeOrder(t, func(o *bourse.VolumeOrder) { o.Source = v.ID }),
		} {
			q, err := h.quote(ctx, o.ForQuote())
			if err != nil || q.Refusal == nil || q.Refusal.Reason != bourse.RefusedCordoned {
				t.Errorf("quote for %s: %+v, %v", what, q.Refusal, err)
			}
			fill, refusal, err := h.claim(ctx, &bourse.Claim{Order: *o})
			if err != nil || fill != nil || refusal == nil || refusal.Reason != bourse.RefusedCordoned || !strings.Contains(refusal.Detail, "cordoned by ada") {
				t.Errorf("claim for %s: %+v, %v", what, refusal, err)
			}
		}
		again, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order})
		if err != nil || refusal != nil || again.Machine.ID != before.Machine.ID {
			t.Errorf("an order from before the cordon, repeated: %+v, %v; want its machine", refusal, err)
		}
		if _, err := h.update(ctx, before.Machine.ID, env("A", "b")); err != nil {
			t.Errorf("update: %v", err)
		}
		h.must(h.machines.Stop(ctx, before.Machine.ID, fabric.MachineAction{}))
		h.reaches(before.Machine.ID, bourse.StateStopped)
		h.must(h.machines.Start(ctx, before.Machine.ID, fabric.MachineAction{}))
		if _, err := h.volumes.Extend(ctx, v.ID, 20); err != nil {
			t.Errorf("extend: %v", err)
		}
		if facts, err = h.cordon(ctx, fabric.CordonRequest{By: "ada"}); err != nil || facts.Cordon != nil {
			t.Errorf("uncordoned: %+v, %v", facts.Cordon, err)
		}
		h.place(fromHold(hold))
		h.verify()
	})
}

// Claims race with a cordon. Once the call that cordons the worker has returned, the worker gets no more machines.
func TestACordonIsExact(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		var claims sync.WaitGroup
		for range 8 {
			claims.Go(func() {
				for range 4 {
					fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *newOrder(t)})
					if err != nil || fill == nil && refusal.Reason != bourse.RefusedCordoned {
						t.Errorf("claim: %+v, %v", refusal, err)
					}
				}
			})
		}
		if _, err := h.cordon(t.Context(), fabric.CordonRequest{Cordon: true}); err != nil {
			t.Fatal(err)
		}
		living := func() (ids []bourse.MachineID) {
			all, err := h.machines.List(t.Context(), nil, func(m *bourse.Machine) bool { return m.State != bourse.StateDestroyed })
			if err != nil {
				t.Error(err)
			}
			for _, m := range all {
				ids = append(ids, m.ID)
			}
			slices.Sort(ids)
			return ids
		}
		seen := living()
		claims.Wait()
		if now := living(); !slices.Equal(seen, now) {
			t.Errorf("%d machines when the cordon call returned, %d at the end", len(seen), len(now))
		}
		h.verify()
	})
}

// TestACordonedWorkerServesCalls checks that a cordon does not affect running machines: they still receive tasks.
func TestACordonedWorkerServesCalls(t *testing.T) {
	p := newProgram(t, nil)
	h := newHost(t, nil)
	h.place(p.Warmed("echo", 1))
	if _, err := h.cordon(t.Context(), fabric.CordonRequest{Cordon: true, By: "ada"}); err != nil {
		t.Fatal(err)
	}
	if v := h.result(t.Context(), call(t, "echo", 1)); v.End != bourse.TaskAnswered {
		t.Errorf("the call ended with %+v", v)
	}
}
