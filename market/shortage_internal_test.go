package market

import (
	"strings"
	"testing"

	"github.com/bourse-dev/bourse"
)

// TestTheMessageNamesEveryShortage checks that the error for an order that no worker fills names
// every resource that is short on any worker, even if no refusal lists that resource first.
func TestTheMessageNamesEveryShortage(t *testing.T) {
	var refusals refusalCounts
	for _, worker := range []bourse.WorkerID{"a", "b"} {
		refusals.add(bourse.Refusal{
			Worker: worker, Region: "gru", Reason: bourse.RefusedResource, Resource: "cpu", Wanted: 2000, Free: 1000,
			Also: []bourse.Shortage{{Resource: "memory", Wanted: 512, Free: 8}},
		})
	}
	order := &bourse.Order{}
	err := refusals.err(order, []bourse.Round{{Regions: bourse.Choice{"gru"}, Candidates: 2, Asked: 2}})
	for _, want := range []string{"memory: wanted 512 MiB, most free 8 MiB", "cpu: wanted 2 cores, most free 1 core"} {
		if !strings.Contains(bourse.MessageOf(err), want) {
			t.Errorf("%v does not contain %q", err, want)
		}
	}
	// If a worker names a thousand resources, the list is shortened.
	long := sanitize(&bourse.Refusal{Also: make([]bourse.Shortage, 1000)}, &bourse.Member{ID: "a", Region: "gru"})
	if len(long.Also) != maxAlso {
		t.Errorf("%d shortages are stored, want %d", len(long.Also), maxAlso)
	}
}
