package lookup

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

var epoch = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// version returns a machine in version n. In version last, the machine is destroyed.
func version(id bourse.MachineID, n, last int) bourse.Machine {
	m := bourse.Machine{ID: id, App: "shop", Worker: "w1", State: bourse.StateStarted, CreatedAt: epoch, UpdatedAt: epoch.Add(time.Duration(n))}
	if n == last {
		m.State = bourse.StateDestroyed
	}
	return m
}

// life is one machine of the model.
type life struct {
	id    bourse.MachineID
	truth int // version on its worker; 0: not created yet
	view  int // version in the view
	acked int // latest version that this broker has sent to a caller
	last  int // version in which the machine is destroyed
}

// listing is a list request in progress.
type listing struct {
	known map[bourse.MachineID]bourse.Machine
	floor []int // the acked version of each machine when the request began
	rows  []*inventory.Listed
}

// TestListsAreNeverOlderThanReplies checks a model in which replies arrive in any order, the view lags behind, and
// lists run concurrently with both. No list may contain an older version of a machine than the broker had reported
// before the list began, or a machine that it had reported as destroyed.
func TestListsAreNeverOlderThanReplies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newReplyCache(func() time.Time { return epoch })
		lives := make([]*life, 2)
		for i := range lives {
			lives[i] = &life{id: bourse.MachineID(fmt.Sprintf("aaaaaa0000000%d", i)), last: rapid.IntRange(2, 6).Draw(t, "last")}
		}
		var begun, read []*listing
		for range 100 {
			l := rapid.SampledFrom(lives).Draw(t, "machine")
			switch op := rapid.SampledFrom([]string{"change", "tell", "hear", "begin", "read", "end"}).Draw(t, "op"); {
			case op == "change":
				l.truth = min(l.truth+1, l.last)
			case op == "tell" && l.truth > 0:
				n := rapid.IntRange(1, l.truth).Draw(t, "version")
				m := version(l.id, n, l.last)
				f.note(&m)
				l.acked = max(l.acked, n)
			case op == "hear":
				l.view = rapid.IntRange(l.view, l.truth).Draw(t, "version")
			case op == "begin":
				begun = append(begun, begin(f, lives))
			case op == "read" && len(begun) > 0:
				begun[0].read(lives)
				begun, read = begun[1:], append(read, begun[0])
			case op == "end" && len(read) > 0:
				check(t, read[0], lives)
				for _, row := range read[0].rows {
					f.sawInView(row.ID, row.UpdatedAt)
				}
				read = read[1:]
			}
		}
	})
}

func begin(f *freshMachines, lives []*life) *listing {
	r := &listing{known: f.of("shop")}
	for _, l := range lives {
		r.floor = append(r.floor, l.acked)
	}
	return r
}

func (r *listing) read(lives []*life) {
	for _, l := range lives {
		if l.view > 0 && l.view < l.last {
			r.rows = append(r.rows, &inventory.Listed{Machine: version(l.id, l.view, l.last)})
		}
	}
}

func check(t *rapid.T, r *listing, lives []*life) {
	u := machineUnion{replies: r.known, rows: r.rows}
	shown := map[bourse.MachineID]int{}
	for _, l := range u.machines(&bourse.App{Name: "shop"}, false) {
		shown[l.ID] = int(l.UpdatedAt.Sub(epoch))
	}
	for i, l := range lives {
		switch got, there := shown[l.id]; {
		case there && r.floor[i] == l.last:
			t.Fatalf("machine %d was reported as destroyed, but is listed as version %d", i, got)
		case there && got < r.floor[i]:
			t.Fatalf("version %[2]d of machine %[1]d was reported, but version %[3]d is listed", i, r.floor[i], got)
		case !there && r.floor[i] > 0 && l.truth < l.last:
			t.Fatalf("version %[2]d of machine %[1]d was reported, but the machine is missing", i, r.floor[i])
		}
	}
}

func TestRepliesExpire(t *testing.T) {
	now := epoch
	f := newReplyCache(func() time.Time { return now })
	m := version("aaaaaa00000000", 1, 9)
	f.note(&m)
	now = now.Add(freshFor - 1)
	if _, ok := f.get(m.ID); !ok {
		t.Error("dropped too early")
	}
	now = now.Add(1)
	if _, ok := f.get(m.ID); ok || len(f.byID) != 0 || f.queue.Len() != 0 {
		t.Errorf("after its expiry: known %v, %d retained", ok, f.queue.Len())
	}
	f.note(&m)
	f.sawInView(m.ID, m.UpdatedAt.Add(-1))
	if _, ok := f.get(m.ID); !ok {
		t.Error("dropped for an older version in the view")
	}
	f.sawInView(m.ID, m.UpdatedAt)
	if _, ok := f.get(m.ID); ok {
		t.Error("not dropped although the view contains it")
	}
	f.note(&m) // the same reply arrives again, late
	if _, ok := f.get(m.ID); ok {
		t.Error("a late reply restored a version that had been in the view")
	}
}

// TestRepliesAreLimited checks that the oldest reply is dropped if there are too many, and that a repeated reply
// becomes the newest.
func TestRepliesAreLimited(t *testing.T) {
	f := newReplyCache(func() time.Time { return epoch })
	id := func(i int) bourse.MachineID { return bourse.MachineID(fmt.Sprintf("aaaaaa%08x", i)) }
	for i := range maxFresh {
		m := version(id(i), 1, 9)
		f.note(&m)
	}
	again := version(id(0), 2, 9)
	f.note(&again)
	for i := range 10 {
		m := version(id(maxFresh+i), 1, 9)
		f.note(&m)
	}
	if len(f.byID) != maxFresh || f.queue.Len() != maxFresh {
		t.Errorf("%d and %d are retained", len(f.byID), f.queue.Len())
	}
	if _, ok := f.get(id(0)); !ok {
		t.Error("the repeated reply was dropped")
	}
	if _, ok := f.get(id(1)); ok {
		t.Error("the oldest reply is retained")
	}
}

// TestRepliesRetainEvents checks that, if a reply has no events, the previous events are retained
// in memory and in the list.
func TestRepliesRetainEvents(t *testing.T) {
	f := newReplyCache(func() time.Time { return epoch })
	events := []bourse.Event{{ID: "e1"}}
	first, second := version("aaaaaa00000000", 1, 9), version("aaaaaa00000000", 2, 9)
	first.LastEvents = events
	f.note(&first)
	f.note(&second)
	if got, _ := f.get(first.ID); len(got.thing.LastEvents) != 1 || got.thing.UpdatedAt != second.UpdatedAt {
		t.Errorf("remembered: %+v", got.thing)
	}
	if got := newer(inventory.Listed{Machine: first}, &second); len(got.LastEvents) != 1 || got.UpdatedAt != second.UpdatedAt {
		t.Errorf("listed: %+v", got.Machine)
	}
	f.note(&bourse.Machine{}) // an empty reply from a worker
	if len(f.byID) != 1 {
		t.Errorf("%d are retained", len(f.byID))
	}
}
