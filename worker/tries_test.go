package worker

import (
	"testing"
	"testing/synctest"

	"github.com/bourse-dev/bourse"
)

// A claim is refused if a later attempt at its order has already asked this worker, because that attempt was told that
// the order is not filled here.
func TestAClaimIsSuperseded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHost(t, nil)
		defer h.crash()
		order := newOrder(t, func(o *bourse.Order) { o.HasChosenID = true })
		as := func(try string) *bourse.Order {
			o := *order
			o.Try = try
			return &o
		}
		for _, try := range []string{"one", "two"} {
			if q, err := h.quote(t.Context(), as(try)); err != nil || q.Refusal != nil || q.Filled != nil {
				t.Fatalf("quote for attempt %s: %+v, %v", try, q, err)
			}
		}
		_, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *as("one")})
		if err != nil || refusal == nil || refusal.Reason != bourse.RefusedSuperseded {
			t.Fatalf("claim of the first attempt: %+v, %v; want it superseded", refusal, err)
		}
		fill, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *as("two")})
		if err != nil || refusal != nil {
			t.Fatalf("claim of the second attempt: %+v, %v", refusal, err)
		}
		if q, err := h.quote(t.Context(), as("three")); err != nil || q.Filled == nil || q.Filled.ID != fill.Machine.ID {
			t.Errorf("quote for the third attempt: %+v, %v; want machine %s", q, err, fill.Machine.ID)
		}
		again, refusal, err := h.claim(t.Context(), &bourse.Claim{Order: *as("two")})
		if err != nil || refusal != nil || again.Machine.ID != fill.Machine.ID {
			t.Errorf("repeated claim: %+v, %v, %v", again, refusal, err)
		}
	})
}
