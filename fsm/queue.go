package fsm

import (
	"cmp"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
)

// closed is a channel that has been closed.
var closed = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// name is the part of a run that never changes.
type name struct{ id, definition, resource string }

// entry is an unfinished run in memory. The fields above turn do not change;
// those below it are guarded by Engine.mu.
type entry struct {
	name
	recorded chan struct{} // closed once the run is durable, or never will be
	applied  chan struct{} // closed once its last transition is applied
	done     chan struct{} // closed once that is durable

	turn chan struct{} // holds one token: its holder may write the next record

	rec       Record      // as it is durable
	due       time.Time   // when it may execute; zero: at once
	def       *definition // nil: unknown
	parked    string      // why, when not ""
	busy      bool        // a goroutine executes it
	held      bool        // is being changed from outside: not to be executed now
	finishing bool        // its last transition has been submitted
	stop      func(error) // ends the ctx of the step that executes
	final     Record      // what it ended with, once that is applied
	startErr  error       // why it was not recorded; set before recorded is closed
}

func newEntry(rec Record) *entry {
	ent := &entry{
		name: name{rec.ID, rec.Definition, rec.Resource}, rec: rec,
		due: dueOf(rec, time.Now()), recorded: make(chan struct{}), applied: make(chan struct{}), done: make(chan struct{}), turn: make(chan struct{}, 1),
	}
	ent.turn <- struct{}{}
	return ent
}

// pending reports whether it is unknown yet if the run will be durable.
func (ent *entry) pending() bool {
	select {
	case <-ent.recorded:
		return false
	default:
		return true
	}
}

// queue orders the unfinished runs of one resource. Its fields are guarded by
// Engine.mu.
type queue struct {
	resource string
	current  *entry   // has the resource: it executes, backs off, is stuck or parked
	waiting  []*entry // in the order of their places
	timer    *time.Timer
}

// place orders the runs of a resource, in memory as after a restart: by the
// time from which a run could execute, then by id.
type place struct {
	ms uint64
	id string
}

func placeOf(rec Record) place {
	p := place{id: cmp.Or(rec.Place, rec.ID)}
	if id, err := ulid.ParseStrict(p.id); err == nil {
		p.ms = id.Time()
	}
	if rec.Status == Delayed {
		// Rounded up, so that a run that was recorded before this one is due
		// stays before it.
		p.ms = max(p.ms, uint64(max(0, rec.NotBefore.Add(time.Millisecond-1).UnixMilli())))
	}
	return p
}

func (p place) compare(q place) int {
	return cmp.Or(cmp.Compare(p.ms, q.ms), cmp.Compare(p.id, q.id))
}

// insert puts ent at its place among those that wait.
func (q *queue) insert(ent *entry) {
	at, _ := slices.BinarySearchFunc(q.waiting, placeOf(ent.rec), func(x *entry, p place) int { return placeOf(x.rec).compare(p) })
	q.waiting = slices.Insert(q.waiting, at, ent)
}

// load puts a run that was read from the journal where it was. One that had
// begun has the resource.
func (q *queue) load(ent *entry) {
	if q.current == nil && (ent.rec.Status == Running || ent.rec.Status == Stuck) {
		q.current = ent
		return
	}
	q.insert(ent)
}

func (q *queue) remove(ent *entry) {
	if q.current == ent {
		q.current = nil
	}
	q.waiting = slices.DeleteFunc(q.waiting, func(x *entry) bool { return x == ent })
}

func (q *queue) empty() bool { return q.current == nil && len(q.waiting) == 0 }

// idle reports whether a run that was added now would execute at once.
func (q *queue) idle(now time.Time) bool {
	return q.current == nil && (len(q.waiting) == 0 || q.waiting[0].due.After(now))
}

// next returns the run that is to execute now, made current, or else the time
// at which to ask again, if there is one.
func (q *queue) next(now time.Time) (*entry, time.Time) {
	ent := q.current
	if ent == nil && len(q.waiting) > 0 {
		ent = q.waiting[0]
	}
	switch {
	case ent == nil || ent.busy || ent.held || ent.pending():
		return nil, time.Time{} // what changes that calls next again
	case ent.due.After(now):
		return nil, ent.due
	case ent.parked != "" || ent.rec.Status == Stuck:
		q.take(ent)
		return nil, time.Time{}
	}
	q.take(ent)
	return ent, time.Time{}
}

func (q *queue) take(ent *entry) {
	if q.current != ent {
		q.remove(ent)
		q.current = ent
	}
}

// joinable returns the run that a second start of the same definition joins.
func (q *queue) joinable(definition string) *entry {
	fits := func(ent *entry) bool {
		return ent.definition == definition && ent.rec.Cancel == "" && !ent.finishing
	}
	if q.current != nil && fits(q.current) {
		return q.current
	}
	if i := slices.IndexFunc(q.waiting, fits); i >= 0 {
		return q.waiting[i]
	}
	return nil
}

func (q *queue) arm(at time.Time, ring func()) {
	q.disarm()
	q.timer = time.AfterFunc(time.Until(at), ring)
}

func (q *queue) disarm() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

// replace puts a waiting run whose record has changed at its place.
func (q *queue) replace(ent *entry) {
	if q.current != ent && slices.Contains(q.waiting, ent) {
		q.remove(ent)
		q.insert(ent)
	}
}
