package worker

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/volumes/volumetest"
)

// A refusal names all resources that are short, and all that the worker does not have.
func TestARefusalNamesEveryShortage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		order := newOrder(t, mem(5000), requires("slots", bourse.Requirement{Count: 11}), func(o *bourse.Order) {
			o.Config.Requirements["tapes"] = bourse.Requirement{Count: 2}
		})
		q, err := h.quote(t.Context(), order)
		if err != nil || q.Refusal == nil {
			t.Fatalf("quoted %+v, %v", q, err)
		}
		_, claimed, err := h.claim(t.Context(), &bourse.Claim{Order: *order})
		if diff := cmp.Diff(q.Refusal, claimed); err != nil || diff != "" {
			t.Errorf("claim: %v (-quote +claim):\n%s", err, diff)
		}
		var got []string
		for _, s := range claimed.Shortages() {
			got = append(got, s.Resource)
			if s.Wanted <= s.Free || s.Worker != "w1" || s.Region != "gru" {
				t.Errorf("shortage %+v", s)
			}
			if !strings.Contains(claimed.Detail, s.Resource) {
				t.Errorf("%q does not name %s", claimed.Detail, s.Resource)
			}
		}
		if diff := cmp.Diff([]string{"memory", "slots", "tapes"}, got); diff != "" {
			t.Errorf("resources (-want +got):\n%s", diff)
		}
	})
}

// An order that is refused because of the records needs no transaction, so its claim
// does not wait for the disk.
func TestARefusalDoesNotWaitForTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		written := make(chan struct{})
		var slow atomic.Bool
		h := newHostDown(t, withVolumes(volumetest.NewHost()))
		h.start(func(stage store.FaultStage, _ uint64) error {
			if stage == store.FaultBefore && slow.Load() {
				<-written
			}
			return nil
		})
		defer h.crash()
		slow.Store(true)
		defer close(written)
		h.store.Submit(func(tx *store.Tx) error {
			return tx.PutOrder(store.OrderRecord{ID: bourse.NewOrderID(), Canceled: true})
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for kind, order := range map[string]*bourse.Order{
			"machine": newOrder(t), "volume": newVolumeOrder(t), "cold task": cold(t, "", "cat"),
			"hold": newHoldOrder(t, bourse.NewReservationKey(), 0, time.Minute),
		} {
			order.Config.Requirements = bourse.Requirements{"arch": {Label: "arm64"}}
			if _, refusal, err := h.claim(ctx, &bourse.Claim{Order: *order}); err != nil || refusal == nil || refusal.Reason != bourse.RefusedLabel {
				t.Errorf("%s: refusal %+v, error %v; want %s", kind, refusal, err, bourse.RefusedLabel)
			}
		}
	})
}
