package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Handle is a started run, seen from outside. It is safe for concurrent use.
type Handle[Res any] struct {
	engine *Engine
	entry  *entry
	joined bool
}

// ID returns the run's id.
func (h *Handle[Res]) ID() string { return h.entry.id }

// Joined reports whether the run was unfinished already: the request of this Start
// was dropped and its Write not executed.
func (h *Handle[Res]) Joined() bool { return h.joined }

// Wait blocks until the run has ended durably and returns its result. The error
// of a failed run is a *bourse.Error with the code that it was aborted with,
// that of a canceled one has CodeCanceled. When ctx ends first, or the engine
// stops, the run goes on (after the restart) and the error reads as timeout or
// canceled. A stuck or parked run has not ended.
func (h *Handle[Res]) Wait(ctx context.Context) (Res, error) {
	var none Res
	rec, err := h.engine.await(ctx, h.entry, h.entry.done)
	if err != nil {
		return none, err
	}
	return outcomeOf[Res](rec)
}

// Applied is Wait that does not wait for the disk: it returns as soon as the
// run's last transition is part of every later transaction. A crash now may
// undo it, and then the run's last step executes again.
func (h *Handle[Res]) Applied(ctx context.Context) (Res, error) {
	var none Res
	rec, err := h.engine.await(ctx, h.entry, h.entry.applied)
	if err == nil && !rec.Status.Ended() { // the journal failed, and what was applied is undone
		rec, err = h.engine.await(ctx, h.entry, h.entry.done)
	}
	if err != nil {
		return none, err
	}
	return outcomeOf[Res](rec)
}

// await waits for a channel that the run's end closes, and returns the record
// that it ended with.
func (e *Engine) await(ctx context.Context, ent *entry, ended <-chan struct{}) (Record, error) {
	select {
	case <-ended:
		return e.finalOf(ent), nil
	case <-ctx.Done():
		return Record{}, fmt.Errorf("wait for run %s: %w", ent.id, ctx.Err())
	case <-e.stopped:
	}
	select {
	case <-ended:
		return e.finalOf(ent), nil
	default:
		return Record{}, bourse.Errorf(bourse.CodeTimeout, "run %s goes on after the restart", ent.id)
	}
}

func (e *Engine) finalOf(ent *entry) Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ent.final
}

// outcomeOf reads an ended record.
func outcomeOf[Res any](rec Record) (Res, error) {
	var res Res
	if err := rec.Err(); err != nil {
		return res, err
	}
	if len(rec.Result) > 0 {
		if err := json.Unmarshal(rec.Result, &res); err != nil {
			return res, bourse.Errorf(bourse.CodeInternal, "result of run %s: %w", rec.ID, err)
		}
	}
	return res, nil
}

// Err returns the error that a failed or canceled run ended with, nil for every
// other.
func (r Record) Err() error {
	switch r.Status {
	case Failed, Canceled:
		if bourse.Code(r.Code) == bourse.CodeInternal {
			return &bourse.Error{Code: bourse.CodeInternal, Message: "internal error", Err: errors.New(r.Error)}
		}
		return &bourse.Error{Code: bourse.Code(r.Code), Message: r.Error}
	case Queued, Delayed, Running, Stuck, Parked, Succeeded:
	}
	return nil
}

// Find returns a handle on a run of this definition: one that has not ended, or
// one that has and is still kept. CodeNotFound when there is none.
func (d *Def[Req, Res]) Find(e *Engine, id string) (*Handle[Res], error) {
	ent, err := e.find(id)
	if err != nil {
		return nil, err
	}
	if ent.definition != d.d.name {
		return nil, notFound(id)
	}
	return &Handle[Res]{engine: e, entry: ent, joined: true}, nil
}

func notFound(id string) error {
	return bourse.Errorf(bourse.CodeNotFound, "run %s not found", bourse.Quoted(id))
}
