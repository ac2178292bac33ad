package worker

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// A refusal names every resource of which there is too little, and those that
// the worker does not have at all.
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
			t.Errorf("the claim: %v (-quote +claim):\n%s", err, diff)
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
