package fsm

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
)

// Cancel records that a run is to be canceled, and why (cause is not empty),
// then cancels it: the ctx of a step that executes ends with that cause, and when the
// step has returned the definition's OnCancel executes instead of the others.
// A run that has not begun, of a definition without OnCancel, ends at once;
// one with OnCancel executes it in its turn, a delayed one without its delay.
//
// When Cancel returns nil the cancellation is durable; the end may not be
// yet. Repeating it is not an error. CodeNotFound: no such run;
// CodeFailedPrecondition: it has ended; CodeUnavailable: nothing happened.
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
		case ent.busy: // its step returns, then it is decided
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

// Retry lets a stuck run execute the step that it is stuck at again, with all
// its attempts. CodeFailedPrecondition: the run is not stuck.
func (e *Engine) Retry(ctx context.Context, runID string) error {
	return e.change(ctx, runID, func(ent *entry) (Record, error) {
		rec, err := stuck(ent)
		rec.Status, rec.Attempt = Running, 0
		return rec, err
	})
}

// Skip treats the step that a run is stuck at as done, as the operator decided:
// the run goes on with the next one, or ends as done, or as canceled when it
// was stuck at its OnCancel. CodeFailedPrecondition: the run is not stuck.
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

// errUnchanged means that a change is in force already.
var errUnchanged = bourse.Errorf(bourse.CodeAlreadyExists, "nothing to change")

// change rewrites the record of an unfinished run from outside: durable first,
// then in force. how is called with e.mu held.
func (e *Engine) change(ctx context.Context, id string, how func(*entry) (Record, error)) error {
	ent, err := e.find(id)
	if err != nil {
		return err
	}
	select {
	case <-ent.turn:
	case <-ctx.Done():
		return fmt.Errorf("change run %s: %w", id, ctx.Err())
	}
	defer func() { ent.turn <- struct{}{} }()

	t, err := e.propose(ent, how)
	if errors.Is(err, errUnchanged) {
		return nil
	}
	if err != nil {
		return err
	}
	err = e.settle(ent, t, nil)
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.held = false
	q := e.queue(ent.resource)
	if err == nil {
		if ent.stop != nil && ent.rec.Cancel != "" {
			ent.stop(bourse.Errorf(bourse.CodeCanceled, "run canceled: %s", ent.rec.Cancel))
		}
		if ent.parked != "" {
			ent.parked = e.unknown(ent)
		}
		q.replace(ent)
	}
	e.launch(q)
	return err
}

// propose submits a change, and keeps the run from beginning until it is decided.
func (e *Engine) propose(ent *entry, how func(*entry) (Record, error)) (*transaction, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ent.rec.Status.Ended() {
		return nil, ended(ent.rec)
	}
	if e.phase == phaseStopping {
		return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker is stopping")
	}
	next, err := how(ent)
	if err != nil {
		return nil, err
	}
	next.UpdatedAt = time.Now().Round(0)
	ent.held, ent.finishing = true, next.Status.Ended()
	t := &transaction{records: []Record{next}}
	t.submit(e.cfg.Journal)
	return t, nil
}

func ended(rec Record) error {
	return bourse.Errorf(bourse.CodeFailedPrecondition, "run %s has ended: %s", rec.ID, rec.Status)
}
