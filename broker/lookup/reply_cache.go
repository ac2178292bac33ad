package lookup

import (
	"container/list"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// Limits for cached replies.
const (
	freshFor = 5 * time.Second // much longer than changes take to reach the view
	maxFresh = 1 << 13         // number of machines or volumes; when it is exceeded, the oldest reply is dropped
)

// replyCache caches workers' latest replies about their machines or volumes. It ensures that a caller who has changed
// an object through this broker never sees an older version in a list, even before the change reaches the view. Replies
// older than freshFor are dropped. If there are more than maxFresh replies, the oldest are dropped as well.
type replyCache[K ~string, T any] struct {
	now   func() time.Time
	about func(*T) replyKey[K]
	merge func(next, old *T) // copies parts of the old version that the new version may lack

	mu    sync.Mutex
	byID  map[K]*list.Element
	queue *list.List // elements are *reply[T], oldest first
}

// replyKey contains the properties of an object that the cache uses to identify and order replies.
type replyKey[K ~string] struct {
	id      K
	app     bourse.AppName
	version time.Time
}

// reply is a worker's latest reply about an object.
type reply[T any] struct {
	thing   T
	version time.Time
	at      time.Time
	seen    time.Time // version of the object in the view, if the view contains this reply or a later version; otherwise zero
}

type (
	freshMachines = replyCache[bourse.MachineID, bourse.Machine]
	freshVolumes  = replyCache[bourse.VolumeID, bourse.Volume]
)

// newReplyCache returns a cache for machines. If a reply has no events, the previous events are retained.
func newReplyCache(now func() time.Time) *freshMachines {
	return &freshMachines{
		now: now, byID: map[bourse.MachineID]*list.Element{}, queue: list.New(),
		about: func(m *bourse.Machine) replyKey[bourse.MachineID] {
			return replyKey[bourse.MachineID]{m.ID, m.App, m.UpdatedAt}
		},
		merge: func(next, old *bourse.Machine) {
			if len(next.LastEvents) == 0 {
				next.LastEvents = old.LastEvents
			}
		},
	}
}

// newFreshVolumes returns a cache for volumes.
func newFreshVolumes(now func() time.Time) *freshVolumes {
	return &freshVolumes{
		now: now, byID: map[bourse.VolumeID]*list.Element{}, queue: list.New(),
		about: func(v *bourse.Volume) replyKey[bourse.VolumeID] {
			return replyKey[bourse.VolumeID]{v.ID, v.App, v.UpdatedAt}
		},
		merge: func(_, _ *bourse.Volume) {},
	}
}

// old reports whether a version is outdated: whether a later version was received, or the view already contains this
// version or a later one.
func (t *reply[T]) old(version time.Time) bool {
	return version.Before(t.version) || !version.After(t.seen)
}

// inView reports whether the view contains the reply or a later version of the object.
func (t *reply[T]) inView() bool { return !t.seen.IsZero() }

// note caches a reply. Replies may arrive out of order; the latest version is kept.
func (f *replyCache[K, T]) note(thing *T) {
	of := f.about(thing)
	if of.id == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	e, ok := f.byID[of.id]
	if !ok {
		f.byID[of.id] = f.queue.PushBack(&reply[T]{thing: *thing, version: of.version, at: f.now()})
		f.purge()
		return
	}
	old := e.Value.(*reply[T])
	if old.old(of.version) {
		return
	}
	next := reply[T]{thing: *thing, version: of.version, at: f.now()}
	f.merge(&next.thing, &old.thing)
	*old = next
	f.queue.MoveToBack(e)
}

// purge drops replies that are too old, and the oldest replies if there are too many. The caller
// holds the lock.
func (f *replyCache[K, T]) purge() {
	for e := f.queue.Front(); e != nil; e = f.queue.Front() {
		t := e.Value.(*reply[T])
		if len(f.byID) <= maxFresh && f.now().Sub(t.at) < freshFor {
			return
		}
		f.queue.Remove(e)
		delete(f.byID, f.about(&t.thing).id)
	}
}

// of returns an app's cached objects, or those of all apps if app is empty. It omits objects whose latest version is in
// the view. The caller must call of before it reads the view. If it reads the view first, an object that reaches the
// view between the two calls is missing from both results.
func (f *replyCache[K, T]) of(app bourse.AppName) map[K]T {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	var out map[K]T
	for e := f.queue.Front(); e != nil; e = e.Next() {
		t := e.Value.(*reply[T])
		of := f.about(&t.thing)
		if t.inView() || (app != "" && of.app != app) {
			continue
		}
		if out == nil {
			out = make(map[K]T, 8)
		}
		out[of.id] = t.thing
	}
	return out
}

// get returns the cached reply about one object. Read the view only after calling get; see of.
func (f *replyCache[K, T]) get(id K) (reply[T], bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	e, ok := f.byID[id]
	if !ok || e.Value.(*reply[T]).inView() {
		return reply[T]{}, false
	}
	return *e.Value.(*reply[T]), true
}

// sawInView records that the view contains a version of an object. From then on, the view alone determines the object's
// data and whether the object still exists. The worker's reply is kept in order to recognize older replies that arrive
// late.
func (f *replyCache[K, T]) sawInView(id K, version time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.byID[id]
	if !ok {
		return
	}
	if t := e.Value.(*reply[T]); !version.Before(t.version) && version.After(t.seen) {
		t.seen = version
	}
}

// newer returns the view's data about a machine, or the worker's reply m if it is more recent.
func newer(l inventory.Listed, m *bourse.Machine) inventory.Listed {
	if !l.UpdatedAt.Before(m.UpdatedAt) {
		return l
	}
	events := l.LastEvents
	l.Machine, l.Complete = *m, true
	if len(m.LastEvents) == 0 {
		l.LastEvents = events
	}
	return l
}
