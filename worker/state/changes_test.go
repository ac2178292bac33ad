package state

import (
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// A caller that waits for a record is notified of every change after its call of Next, whatever else happens at the
// same time.
func TestNoChangeIsMissed(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		const changes = 200
		n := newChanges[int]()
		var version atomic.Int64
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for {
					change := n.Next(1)
					if version.Load() == changes {
						return
					}
					<-change // if a change is missed, this blocks, and synctest reports a deadlock
				}
			})
		}
		group.Go(func() {
			for range changes {
				version.Add(1)
				n.Applied(1)
				n.Applied(2)
			}
		})
		group.Wait()
	})
}

// Followers see all changes in order. Callers that wait are not notified of a change
// that may still fail.
func TestFollowersSeeUnsureChanges(t *testing.T) {
	n := newChanges[string]()
	var got []string
	for _, name := range []string{"first", "second"} {
		n.Follow(func(id string, unsure bool) {
			if unsure {
				id += "?"
			}
			got = append(got, name+" "+id)
		})
	}
	change := n.Next("a")
	n.Submitted("a")
	select {
	case <-change:
		t.Error("woken by a change that is not in the store yet")
	default:
	}
	n.Applied("a")
	<-change
	if want := []string{"first a?", "second a?", "first a", "second a"}; !slices.Equal(got, want) {
		t.Errorf("followers saw %q, want %q", got, want)
	}
	if len(n.waits) != 0 {
		t.Errorf("there are still waiting callers for %d records", len(n.waits))
	}
}
