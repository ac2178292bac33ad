package lookup

import (
	"container/list"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Bounds of what is remembered of replies.
const (
	freshFor = 5 * time.Second // far longer than news take through the view
	maxFresh = 1 << 13         // machines; past it the oldest is forgotten
)

// fresh remembers what owners replied of their machines, or volumes, in the last
// seconds, so that no caller that changed one through this broker finds it older in
// a list than in the reply: the news may still be on its way to the view.
// What was replied longer ago, or before maxFresh others, is read from
// the view alone.
type fresh[K ~string, T any] struct {
	now   func() time.Time
	about func(*T) about[K]
	keep  func(next, old *T) // what a reply may lack stays as it was

	mu    sync.Mutex
	byID  map[K]*list.Element
	queue *list.List // of *told[T], oldest first
}

// about is what fresh has to know of a thing.
type about[K ~string] struct {
	id      K
	app     bourse.AppName
	version time.Time
}

// told is what an owner replied of a thing.
type told[T any] struct {
	thing   T
	version time.Time
	at      time.Time
	seen    time.Time // the version that the view has, if that is as late
}

type (
	freshMachines = fresh[bourse.MachineID, bourse.Machine]
	freshVolumes  = fresh[bourse.VolumeID, bourse.Volume]
)

// newFresh remembers machines. A reply without events keeps those that were
// known.
func newFresh(now func() time.Time) *freshMachines {
	return &freshMachines{
		now: now, byID: map[bourse.MachineID]*list.Element{}, queue: list.New(),
		about: func(m *bourse.Machine) about[bourse.MachineID] {
			return about[bourse.MachineID]{m.ID, m.App, m.UpdatedAt}
		},
		keep: func(next, old *bourse.Machine) {
			if len(next.LastEvents) == 0 {
				next.LastEvents = old.LastEvents
			}
		},
	}
}

// newFreshVolumes remembers volumes.
func newFreshVolumes(now func() time.Time) *freshVolumes {
	return &freshVolumes{
		now: now, byID: map[bourse.VolumeID]*list.Element{}, queue: list.New(),
		about: func(v *bourse.Volume) about[bourse.VolumeID] {
			return about[bourse.VolumeID]{v.ID, v.App, v.UpdatedAt}
		},
		keep: func(_, _ *bourse.Volume) {},
	}
}

// old reports whether a version has nothing that is not known: the view has
// it, or a later one was replied.
func (t *told[T]) old(version time.Time) bool {
	return version.Before(t.version) || !version.After(t.seen)
}

// heard reports whether the view has what was replied.
func (t *told[T]) heard() bool { return !t.seen.IsZero() }

// note takes in a reply. Replies may overtake one another: the later version
// stays.
func (f *fresh[K, T]) note(thing *T) {
	of := f.about(thing)
	if of.id == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	e, ok := f.byID[of.id]
	if !ok {
		f.byID[of.id] = f.queue.PushBack(&told[T]{thing: *thing, version: of.version, at: f.now()})
		f.purge()
		return
	}
	old := e.Value.(*told[T])
	if old.old(of.version) {
		return
	}
	next := told[T]{thing: *thing, version: of.version, at: f.now()}
	f.keep(&next.thing, &old.thing)
	*old = next
	f.queue.MoveToBack(e)
}

// purge forgets what is too old or too much. The caller holds the lock.
func (f *fresh[K, T]) purge() {
	for e := f.queue.Front(); e != nil; e = f.queue.Front() {
		t := e.Value.(*told[T])
		if len(f.byID) <= maxFresh && f.now().Sub(t.at) < freshFor {
			return
		}
		f.queue.Remove(e)
		delete(f.byID, f.about(&t.thing).id)
	}
}

// of returns what is remembered of an app's things, of all when app is empty.
// Take it before reading the view: between the two the view may catch up, and
// what it has caught up with is forgotten here.
func (f *fresh[K, T]) of(app bourse.AppName) map[K]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	var out map[K]T
	for e := f.queue.Front(); e != nil; e = e.Next() {
		t := e.Value.(*told[T])
		of := f.about(&t.thing)
		if t.heard() || (app != "" && of.app != app) {
			continue
		}
		if out == nil {
			out = make(map[K]T, 8)
		}
		out[of.id] = t.thing
	}
	return out
}

// get returns what is remembered of one thing. Take it before reading the
// view, as with of.
func (f *fresh[K, T]) get(id K) (told[T], bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	e, ok := f.byID[id]
	if !ok || e.Value.(*told[T]).heard() {
		return told[T]{}, false
	}
	return *e.Value.(*told[T]), true
}

// saw tells that the view has a thing in this version. From now on the view
// alone tells of it, also that it is gone; it is remembered for the sake of
// replies that are late.
func (f *fresh[K, T]) saw(id K, version time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.byID[id]
	if !ok {
		return
	}
	if t := e.Value.(*told[T]); !version.Before(t.version) && version.After(t.seen) {
		t.seen = version
	}
}

// newer returns what the view has of a machine, brought up to what its owner has
// replied since.
func newer(l inventory.Listed, m *bourse.Machine) inventory.Listed {
	if !l.UpdatedAt.Before(m.UpdatedAt) {
		return l
	}
	events := l.LastEvents
	l.Machine, l.Whole = *m, true
	if len(m.LastEvents) == 0 {
		l.LastEvents = events
	}
	return l
}
