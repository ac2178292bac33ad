package fsm

import (
	"cmp"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"
)

// closedChan is a closed channel.
var closedChan = func() chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// name identifies a run. It never changes.
type name struct{ id, definition, resource string }

// entry is an unfinished run in memory. The fields from rec on are guarded by Engine.mu. The fields above rec never
// change.
type entry struct {
	name
	recorded chan struct{} // closed once the run is durable or has been rejected
	applied  chan struct{} // closed once the run's last transition is applied
	done     chan struct{} // closed once the run's last transition is durable

	token chan struct{} // contains one token; the goroutine that takes it may write the run's next record

	rec       Record      // the latest durable record
	due       time.Time   // time from which the run may execute; zero means at once
	def       *definition // nil if it is unknown to this release
	parked    string      // reason why the run is parked; empty if it is not
	busy      bool        // whether a goroutine is executing the run
	held      bool        // whether a caller is changing the run, so that it must not execute now
	finishing bool        // whether the run's last transition has been submitted
	stop      func(error) // cancels the ctx of the executing step
	final     Record      // the run's last record, once applied
	startErr  error       // reason why the run was not recorded; set before recorded is closed
}

func newEntry(rec Record) *entry {
	ent := &entry{
		name: name{rec.ID, rec.Definition, rec.Resource}, rec: rec,
		due: dueOf(rec, time.Now()), recorded: make(chan struct{}), applied: make(chan struct{}), done: make(chan struct{}), token: make(chan struct{}, 1),
	}
	ent.token <- struct{}{}
	return ent
}

// pending reports whether the run's first record is neither durable nor rejected yet.
func (ent *entry) pending() bool {
	select {
	case <-ent.recorded:
		return false
	default:
		return true
	}
}

// queue orders the unfinished runs of one resource. Its fields are guarded by Engine.mu.
type queue struct {
	resource string
	current  *entry   // the run that owns the resource: executing, backing off, stuck or parked
	waiting  []*entry // sorted by place
	timer    *time.Timer
}

// queuePlace is a run's place in its resource's queue. It consists of the earliest time at which the run can execute,
// and the run's id. A restart does not change it.
type queuePlace struct {
	ms uint64
	id string
}

func placeOf(rec Record) queuePlace {
	p := queuePlace{id: rec.ID}
	if id, err := ulid.ParseStrict(p.id); err == nil {
		p.ms = id.Time()
	}
	if rec.Status == Delayed {
		// Round up, so that a delayed run is queued after every run that was recorded before its due time.
		p.ms = max(p.ms, uint64(max(0, rec.NotBefore.Add(time.Millisecond-1).UnixMilli())))
	}
	return p
}

func (p queuePlace) compare(q queuePlace) int {
	return cmp.Or(cmp.Compare(p.ms, q.ms), cmp.Compare(p.id, q.id))
}

// insert adds ent to the waiting runs, at its place.
func (q *queue) insert(ent *entry) {
	at, _ := slices.BinarySearchFunc(q.waiting, placeOf(ent.rec), func(x *entry, p queuePlace) int { return placeOf(x.rec).compare(p) })
	q.waiting = slices.Insert(q.waiting, at, ent)
}

// load adds a run that was read from the journal. A run that has begun owns the resource.
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

// idle reports whether a run that is added now would execute immediately.
func (q *queue) idle(now time.Time) bool {
	return q.current == nil && (len(q.waiting) == 0 || q.waiting[0].due.After(now))
}

// next returns the run to execute now and makes it the current one. If there is none, it returns nil and the time at
// which it must be called again, or the zero time if no timer is needed.
func (q *queue) next(now time.Time) (*entry, time.Time) {
	ent := q.current
	if ent == nil && len(q.waiting) > 0 {
		ent = q.waiting[0]
	}
	switch {
	case ent == nil || ent.busy || ent.held || ent.pending():
		return nil, time.Time{} // the caller calls next again when this changes
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

// joinable returns the run that a call to Start for the given definition would join, or nil if there is none.
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

func (q *queue) setTimer(at time.Time, ring func()) {
	q.stopTimer()
	q.timer = time.AfterFunc(time.Until(at), ring)
}

func (q *queue) stopTimer() {
	if q.timer != nil {
		q.timer.Stop()
		q.timer = nil
	}
}

// replace moves a waiting run to its new place after its record has changed.
func (q *queue) replace(ent *entry) {
	if q.current != ent && slices.Contains(q.waiting, ent) {
		q.remove(ent)
		q.insert(ent)
	}
}
