package inventory

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// Unreachable workers are listed with their last known contents and the time when they were last reachable. Removed
// workers are in another list, which shows whether they have started a new epoch since.
func TestAwayAndRemovedWorkers(t *testing.T) {
	c := plenty(t)
	at := time.Unix(1_700_000_000, 0).UTC()
	hear(t, c, "w1", false, at)
	got, err := UnreachableWorkers()(c)
	if err != nil || len(got) != 1 || got[0].ID != "w1" || !got[0].HeardAt.Equal(at) || got[0].Machines != 1 || got[0].Volumes != 1 {
		t.Errorf("unreachable: %+v, %v", got, err)
	}
	Plant(t, c, "b1", RemovedRow(&bourse.Member{ID: "w1"}, time.UnixMilli(0))) // w1 has epoch 1
	removed, err := Removed()(c)
	var back []string
	for _, m := range removed {
		back = append(back, fmt.Sprint(m.ID, " ", m.Returned))
	}
	if want := []string{"w1 true", "w9 false"}; err != nil || !cmp.Equal(want, back) {
		t.Errorf("removed: %v, %v, want %v", back, err, want)
	}
}
