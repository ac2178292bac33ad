package broker

import (
	"container/list"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds of what is remembered of replies.
const (
	freshFor = 5 * time.Second // far longer than news take through the view
	maxFresh = 1 << 13         // machines; past it the oldest is forgotten
)

// fresh remembers what owners told of their machines in the last seconds, so
// that nobody who changed one through this broker finds it older in a list
// than they were told: the news may still be on its way to the view. What was
// told longer ago, or to more than maxFresh others since, is read from the
// view alone.
type fresh struct {
	now func() time.Time

	mu    sync.Mutex
	byID  map[bourse.MachineID]*list.Element
	queue *list.List // of *told, oldest first
}

// told is what an owner told of a machine.
type told struct {
	machine bourse.Machine
	at      time.Time
	seen    time.Time // the version that the view has, if that is as late
}

// old tells whether a version says nothing that is not known: the view has
// it, or a later one was told.
func (t *told) old(version time.Time) bool {
	return version.Before(t.machine.UpdatedAt) || !version.After(t.seen)
}

// heard tells whether the view has what was told.
func (t *told) heard() bool { return !t.seen.IsZero() }

func newFresh(now func() time.Time) *fresh {
	return &fresh{now: now, byID: map[bourse.MachineID]*list.Element{}, queue: list.New()}
}

// note takes in a reply. Replies may overtake one another: the later version
// stays. One without events keeps those that were known.
func (f *fresh) note(m *bourse.Machine) {
	if m.ID == "" {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	e, ok := f.byID[m.ID]
	if !ok {
		f.byID[m.ID] = f.queue.PushBack(&told{machine: *m, at: f.now()})
		f.purge()
		return
	}
	old := e.Value.(*told)
	if old.old(m.UpdatedAt) {
		return
	}
	events := old.machine.LastEvents
	old.machine, old.at, old.seen = *m, f.now(), time.Time{}
	if len(m.LastEvents) == 0 {
		old.machine.LastEvents = events
	}
	f.queue.MoveToBack(e)
}

// purge forgets what is too old or too much. The caller holds the lock.
func (f *fresh) purge() {
	for e := f.queue.Front(); e != nil; e = f.queue.Front() {
		t := e.Value.(*told)
		if len(f.byID) <= maxFresh && f.now().Sub(t.at) < freshFor {
			return
		}
		f.queue.Remove(e)
		delete(f.byID, t.machine.ID)
	}
}

// of gives what is remembered of an app's machines, of all when app is empty.
// Take it before reading the view: between the two the view may catch up, and
// what it has caught up with is forgotten here.
func (f *fresh) of(app bourse.AppName) map[bourse.MachineID]bourse.Machine {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	var out map[bourse.MachineID]bourse.Machine
	for e := f.queue.Front(); e != nil; e = e.Next() {
		t := e.Value.(*told)
		if t.heard() || (app != "" && t.machine.App != app) {
			continue
		}
		if out == nil {
			out = make(map[bourse.MachineID]bourse.Machine, 8)
		}
		out[t.machine.ID] = t.machine
	}
	return out
}

// get gives what is remembered of one machine. Take it before reading the
// view, as with of.
func (f *fresh) get(id bourse.MachineID) (told, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.purge()
	e, ok := f.byID[id]
	if !ok || e.Value.(*told).heard() {
		return told{}, false
	}
	return *e.Value.(*told), true
}

// saw tells that the view has a machine in this version. From now on the view
// alone tells of it, also that it is gone; it is remembered for the sake of
// replies that are late.
func (f *fresh) saw(id bourse.MachineID, version time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.byID[id]
	if !ok {
		return
	}
	if t := e.Value.(*told); !version.Before(t.machine.UpdatedAt) && version.After(t.seen) {
		t.seen = version
	}
}

// newer gives what the view has of a machine, brought up to what its owner has
// told since.
func (l Listed) newer(m *bourse.Machine) Listed {
	if !l.UpdatedAt.Before(m.UpdatedAt) {
		return l
	}
	events := l.LastEvents
	l.Machine = *m
	if len(m.LastEvents) == 0 {
		l.LastEvents = events
	}
	return l
}
