package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Handle refers to a run that has been started. It is safe for concurrent use.
type Handle[Res any] struct {
	engine *Engine
	entry  *entry
	joined bool
}

// ID returns the run's id.
func (h *Handle[Res]) ID() string { return h.entry.id }

// Joined reports whether Start returned an existing run. If so, Start ignored the request and StartOptions.Write.
func (h *Handle[Res]) Joined() bool { return h.joined }

// Wait blocks until the run has ended and its last record is durable. It then returns the run's
// result. If the run has failed, the error is a *bourse.Error with the code of its abort. If it was
// canceled, the error has CodeCanceled. If ctx is done first, Wait returns ctx's error, and the run
// continues. If the engine stops first, Wait returns CodeTimeout, and the run continues after the
// restart. A stuck or parked run has not ended.
func (h *Handle[Res]) Wait(ctx context.Context) (Res, error) {
	var none Res
	rec, err := h.engine.await(ctx, h.entry, h.entry.done)
	if err != nil {
		return none, err
	}
	return outcomeOf[Res](rec)
}

// Applied is like Wait but does not wait for the disk: it returns as soon as later transactions
// see the transition that ends the run. If a crash undoes that transition, the run's last step
// executes again.
func (h *Handle[Res]) Applied(ctx context.Context) (Res, error) {
	var none Res
	rec, err := h.engine.await(ctx, h.entry, h.entry.applied)
	if err == nil && !rec.Status.Ended() { // the journal has failed, so the transition was undone
		rec, err = h.engine.await(ctx, h.entry, h.entry.done)
	}
	if err != nil {
		return none, err
	}
	return outcomeOf[Res](rec)
}

// await waits until ended is closed, which happens when the run ends. It then returns the run's last record.
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
		return Record{}, bourse.Errorf(bourse.CodeTimeout, "run %s will continue after the restart", ent.id)
	}
}

func (e *Engine) finalOf(ent *entry) Record {
	e.mu.Lock()
	defer e.mu.Unlock()
	return ent.final
}

// outcomeOf returns the decoded result of an ended run, or the run's error.
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

// Err returns the error of a run that has failed or been canceled, and nil for any other run.
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

// Find returns a handle for a run of this definition, even if the run has ended, as long as its record exists. Find
// returns CodeNotFound if there is no such run.
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
