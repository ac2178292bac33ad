package fsm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// Cancel durably records the cancellation of a run and its cause ("canceled" if empty), and then cancels the run. If a
// step is executing, its ctx is canceled with that cause. Once the step has returned, the definition's OnCancel
// executes instead of the remaining steps. A run that has not begun ends immediately, unless its definition has an
// OnCancel. In that case, OnCancel executes when the run reaches the front of its queue, regardless of the run's delay.
//
// When Cancel returns nil, the cancellation is durable, but the run may not have ended yet. Cancel may be repeated.
// Errors: CodeNotFound if there is no such run, CodeFailedPrecondition if it has ended, CodeUnavailable if the
// cancellation could not be recorded.
func (e *Engine) Cancel(ctx context.Context, runID, cause string) error {
	if cause == "" {
		cause = "canceled"
	}
	return e.change(ctx, runID, func(ent *entry) (Record, error) {
		rec := ent.rec
		if rec.Cancel != "" {
			return rec, errUnchanged
		}
		begun := ent.busy || rec.Status == Running || rec.Status == Stuck
		rec.Cancel, rec.Attempt, rec.NotBefore = cause, 0, time.Time{}
		switch {
		case ent.busy: // the run ends or continues when its step returns
		case !begun && ent.def != nil && ent.def.onCancel == nil:
			return end(rec, Canceled, bourse.CodeCanceled, cause), nil
		case begun:
			rec.Status = Running
		default:
			rec.Status = Queued
		}
		return rec, nil
	})
}

// Retry resumes a stuck run. It resets the number of attempts of the run's step, which then
// executes again. It returns CodeFailedPrecondition if the run is not stuck.
func (e *Engine) Retry(ctx context.Context, runID string) error {
	return e.change(ctx, runID, func(ent *entry) (Record, error) {
		rec, err := stuck(ent)
		rec.Status, rec.Attempt = Running, 0
		return rec, err
	})
}

// Skip treats a stuck run's step as done, at the operator's request. The run then continues with the next step. If the
// step was the last one, the run ends as done. If the run was stuck in OnCancel, it ends as canceled. Skip returns
// CodeFailedPrecondition if the run is not stuck.
func (e *Engine) Skip(ctx context.Context, runID string) error {
	return e.change(ctx, runID, func(ent *entry) (Record, error) {
		rec, err := stuck(ent)
		if err != nil {
			return rec, err
		}
		s := ent.def.step(rec.Step)
		if rec.Cancel != "" {
			s = ent.def.compensation()
		}
		return decide(ent.def, rec, s, Done(), rec.Result, time.Now(), 0), nil
	})
}

func stuck(ent *entry) (Record, error) {
	if ent.rec.Status != Stuck || ent.parked != "" {
		return ent.rec, bourse.Errorf(bourse.CodeFailedPrecondition, "run %s is not stuck", ent.id)
	}
	return ent.rec, nil
}

// errUnchanged means that the requested change has already been made.
var errUnchanged = bourse.Errorf(bourse.CodeAlreadyExists, "nothing to change")

// change replaces the record of an unfinished run with the record that edit returns. It calls edit with e.mu held.
// The new record takes effect once it is durable.
func (e *Engine) change(ctx context.Context, id string, edit func(*entry) (Record, error)) error {
	ent, err := e.find(id)
	if err != nil {
		return err
	}
	select {
	case <-ent.token:
	case <-ctx.Done():
		return fmt.Errorf("change run %s: %w", id, ctx.Err())
	}
	defer func() { ent.token <- struct{}{} }()

	t, err := e.propose(ent, edit)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	err = e.settle(ent, t)
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.held = false
	q := e.queue(ent.resource)
	if err == nil {
		if ent.stop != nil && ent.rec.Cancel != "" {
			ent.stop(bourse.Errorf(bourse.CodeCanceled, "run canceled: %s", ent.rec.Cancel))
		}
		if ent.parked != "" {
			ent.parked = e.unknownPart(ent)
		}
		q.replace(ent)
	}
	e.launch(q)
	return err
}

// propose submits the record that edit returns, and prevents the run from executing until the outcome is known.
func (e *Engine) propose(ent *entry, edit func(*entry) (Record, error)) (*transaction, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ent.rec.Status.Ended() {
		return nil, ended(ent.rec)
	}
	if e.phase == phaseStopping {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker is stopping")
	}
	next, err := edit(ent)
	if err != nil {
		return nil, err
	}
	next.UpdatedAt = time.Now().Round(0)
	ent.held, ent.finishing = true, next.Status.Ended()
	t := &transaction{record: next}
	t.submit(e.cfg.Journal)
	return t, nil
}

func ended(rec Record) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "run %s has ended: %s", rec.ID, rec.Status)
}
