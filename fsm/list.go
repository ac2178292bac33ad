package fsm

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// Runs returns the current records of all unfinished runs, in the order they were started. If a run
// is parked, its Error names the definition, step or request that this release does not know.
func (e *Engine) Runs() []Record {
	return e.list(func(*entry) bool { return true })
}

func (e *Engine) list(wanted func(*entry) bool) []Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	var out []Record
	for _, ent := range e.runs {
		if !ent.pending() && wanted(ent) {
			out = append(out, e.show(ent))
		}
	}
	slices.SortFunc(out, func(a, b Record) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// show returns the record of ent with its current status. e.mu is held.
func (e *Engine) show(ent *entry) Record {
	rec := ent.rec
	switch {
	case ent.parked != "":
		rec.Status, rec.Error = Parked, ent.parked
	case rec.Status == Stuck || rec.Status.Ended():
	case ent.busy || e.queue(ent.resource).current == ent:
		rec.Status = Running
	case ent.due.After(time.Now()):
		rec.Status = Delayed
	case rec.Status == Delayed:
		rec.Status = Queued
	}
	return rec
}

// Wait blocks until a run of any definition has ended and its last record is durable, and returns
// that record; see [Handle.Wait].
func (e *Engine) Wait(ctx context.Context, runID string) (Record, error) {
	ent, err := e.find(runID)
	if err != nil {
		return Record{}, err
	}
	return e.await(ctx, ent, ent.done)
}

// find returns the entry of a run. It also finds an ended run, as long as the run's record exists.
func (e *Engine) find(id string) (*entry, error) {
	if err := e.load(); err != nil {
		return nil, err
	}
	e.mu.Lock()
	ent := e.runs[id]
	e.mu.Unlock()
	if ent != nil && !ent.pending() {
		return ent, nil
	}
	rec, ok, err := e.cfg.Journal.Run(id)
	switch {
	case err != nil:
		return nil, err
	case !ok || !rec.Status.Ended():
		return nil, notFound(id)
	}
	ent = newEntry(rec)
	ent.recorded, ent.applied, ent.done, ent.final = closedChan, closedChan, closedChan, rec
	return ent, nil
}
