package fsm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// Handle refers to a started run. It is safe for concurrent use.
type Handle[Res any] struct {
	engine *Engine
	entry  *entry
	joined bool
}

// ID returns the run's id.
func (h *Handle[Res]) ID() string { return h.entry.id }

// Joined reports whether Start returned an existing unfinished run. In that case, Start ignored
// its request and StartOptions.Write.
func (h *Handle[Res]) Joined() bool { return h.joined }

// Wait blocks until the run has ended durably and returns its result. The error of a failed run
// is a *bourse.Error with the code of its abort; that of a canceled run has CodeCanceled. If ctx
// ends first, or the engine stops, the error is a timeout or a cancellation, and the run
// continues, in the latter case after the restart. A stuck or parked run has not ended.
func (h *Handle[Res]) Wait(ctx context.Context) (Res, error) {
	var none Res
	rec, err := h.engine.await(ctx, h.entry, h.entry.done)
	if err != nil {
		return none, err
	}
	return outcomeOf[Res](rec)
}

// Applied is like Wait but does not wait for the disk: it returns as soon as later transactions
// see the run's last transition. If a crash undoes that transition, the run's last step executes
// again.
func (h *Handle[Res]) Applied(ctx context.Context) (Res, error) {
	var none Res
	rec, err := h.engine.await(ctx, h.entry, h.entry.applied)
	if err == nil && !rec.Status.Ended() { // the journal failed, so the applied transition was undone
		rec, err = h.engine.await(ctx, h.entry, h.entry.done)
	}
	if err != nil {
		return none, err
	}
	return outcomeOf[Res](rec)
}

// await waits until the channel ended is closed, which happens at the run's end, and returns the
// run's last record.
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

// outcomeOf decodes the result or error of an ended record.
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

// Err returns the error of a failed or canceled run, and nil for any other run.
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

// Find returns a handle for a run of this definition. The run may have ended, as long as it is
// still recorded. Find returns CodeNotFound if there is no such run.
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
