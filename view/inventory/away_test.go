package inventory

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/bourse-dev/bourse"
)

// Unreachable workers are listed with their last known contents and the time when they were last
// reachable. Forgotten lists a removed worker until it starts a new epoch; w1 has done so.
func TestAwayAndRemovedWorkers(t *testing.T) {
	c := plenty(t)
	at := time.Unix(1_700_000_000, 0).UTC()
	hear(t, c, "w1", false, at)
	got, err := AwayWorkers()(c)
	if err != nil || len(got) != 1 || got[0].ID != "w1" || !got[0].HeardAt.Equal(at) || got[0].Machines != 1 || got[0].Volumes != 1 {
		t.Errorf("away: %+v, %v", got, err)
	}
	Plant(t, c, "b1", ForgottenRow(&bourse.Member{ID: "w1"}, time.UnixMilli(0))) // w1's epoch, 1, is later
	forgotten, err := Forgotten()(c)
	if want := []bourse.WorkerID{"w9"}; err != nil || len(forgotten) != 1 || !cmp.Equal(want, []bourse.WorkerID{forgotten[0].ID}) {
		t.Errorf("forgotten: %+v, %v, want %v", forgotten, err, want)
	}
}
