package fsm

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// StartOptions configures a call to [Def.Start].
type StartOptions struct {
	NotBefore time.Time // earliest time at which the first step may execute; default: at once
	// Write adds changes to the transaction that contains the run's first record. If Write returns an error, nothing is recorded, and Start returns the error unchanged.
	Write Write
	// Queue starts a new run even if another run of the same definition is unfinished on the
	// resource.
	Queue bool
}

// Start records a run on a resource in one transaction and returns once it is durable. The run
// executes when its turn comes, which may be before Start returns. If the resource already has an
// unfinished run of the same definition that has not been canceled, Start returns a handle for
// that run, unless o.Queue is set. Start may be called before Engine.Run.
//
// Errors: the error of o.Write; CodeRateLimited if too many runs wait on the resource; CodeUnavailable if the engine is
// stopping or the journal cannot write (nothing was recorded); CodeTimeout if it is unknown whether the run was
// recorded; CodeInvalid if the resource or request cannot be recorded. If ctx is done first, the outcome is unknown.
func (d *Def[Req, Res]) Start(ctx context.Context, e *Engine, resource string, req Req, o StartOptions) (*Handle[Res], error) {
	raw, err := encodeRequest(d.d, req)
	if err != nil {
		return nil, err
	}
	ent, joined, err := e.start(ctx, d.d, resource, raw, o)
	if err != nil {
		return nil, err
	}
	return &Handle[Res]{engine: e, entry: ent, joined: joined}, nil
}

func (e *Engine) start(ctx context.Context, d *definition, resource string, request json.RawMessage, o StartOptions) (*entry, bool, error) {
	if !validName(resource) {
		return nil, false, bourse.Errorf(bourse.CodeInvalid, "invalid resource %s", bourse.Quoted(resource))
	}
	if err := e.load(); err != nil {
		return nil, false, err
	}
	for {
		ent, joined, err := e.admit(d, resource, request, o)
		if err != nil {
			return nil, false, err
		}
		select {
		case <-ent.recorded:
		case <-ctx.Done():
			return nil, false, fmt.Errorf("start %s: %w", d.name, ctx.Err())
		}
		if joined && ent.startErr != nil {
			continue // the run to join was not recorded after all, so try again
		}
		return ent, joined, ent.startErr
	}
}

// admit returns the run that a call to Start joins, and true. If there is no such run, admit submits the first record
// of a new run, and returns the new run and false.
func (e *Engine) admit(d *definition, resource string, request json.RawMessage, o StartOptions) (*entry, bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.phase == phaseStopping {
		return nil, false, bourse.Errorf(bourse.CodeUnavailable, "the worker is stopping")
	}
	if e.defs[d.name] != d {
		return nil, false, bourse.Errorf(bourse.CodeInternal, "definition %s is not registered", d.name)
	}
	q := e.queue(resource)
	if !o.Queue {
		if ent := q.joinable(d.name); ent != nil {
			return ent, true, nil
		}
	}
	now := time.Now()
	if err := e.checkQueue(q); err != nil {
		return nil, false, err
	}
	rec := Record{Definition: d.name, Resource: resource, Request: request, NotBefore: o.NotBefore.Round(0)}
	ent := e.enqueue(q, d, rec, now)
	t := &transaction{record: ent.rec}
	if o.Write != nil {
		t.writes = []Write{o.Write}
	}
	t.submit(e.cfg.Journal)
	e.workers.Go(func() { e.record(ent, t) })
	return ent, false, nil
}

// checkQueue returns CodeRateLimited if q is full.
func (e *Engine) checkQueue(q *queue) error {
	waiting := len(q.waiting)
	if q.current == nil {
		waiting-- // the first waiting run is about to execute
	}
	if waiting >= e.cfg.MaxQueue {
		return bourse.Errorf(bourse.CodeRateLimited, "%d runs already wait for %s", waiting, q.resource)
	}
	return nil
}

// enqueue completes rec, the first record of a run, and adds the run to q as pending. The caller
// must hold e.mu until it has submitted the record, so that runs become durable in the order of
// their ids.
func (e *Engine) enqueue(q *queue, d *definition, rec Record, now time.Time) *entry {
	rec.ID, rec.Step, rec.CreatedAt, rec.UpdatedAt = e.ids.next(now), d.steps[0].name, now.Round(0), now.Round(0)
	switch {
	case rec.NotBefore.After(now):
		rec.Status = Delayed
	case q.idle(now):
		rec.Status = Running
	default:
		rec.Status = Queued
	}
	ent := newEntry(rec)
	ent.def = d
	e.runs[ent.id] = ent
	q.insert(ent)
	return ent
}

// record waits until a new run is durable and then executes the next run in its resource's queue.
func (e *Engine) record(ent *entry, t *transaction) {
	err := t.wait()
	if err != nil {
		e.reject(ent, err)
		return
	}
	e.cfg.Observe(ent.rec)
	e.work(e.admitted(ent))
}

// admitted marks a run as durable. It returns the run to execute now on the resource, or nil.
func (e *Engine) admitted(ent *entry) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(ent.recorded)
	return e.schedule(e.queue(ent.resource))
}

// reject removes a run that could not be recorded.
func (e *Engine) reject(ent *entry, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.startErr = err
	close(ent.recorded)
	delete(e.runs, ent.id)
	q := e.queue(ent.resource)
	q.remove(ent)
	e.launch(q)
}
