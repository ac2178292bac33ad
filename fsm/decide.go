package fsm

import (
	"encoding/json"
	"errors"
	"math"
	"time"

	"github.com/bourse-dev/bourse"
)

// errNoOutcome is the error of a run whose step returned the zero Outcome.
var errNoOutcome = bourse.Errorf(bourse.CodeInternal, "the step returned no outcome")

// decide returns a run's new record after step s has returned outcome o. result is the run's
// encoded result, and jitter is in [0, 1).
//
// If the run's cancellation has been recorded, the outcome does not determine how the run
// continues. The compensation executes next, and then the run ends as canceled. The outcome's
// writes are committed in any case.
func decide(d *definition, rec Record, s *step, o Outcome, result json.RawMessage, now time.Time, jitter float64) Record {
	rec.UpdatedAt, rec.Status = now.Round(0), Running
	if o.finished() {
		rec.Result, rec.Code, rec.Error = result, "", ""
		rec.Attempt, rec.NotBefore = 0, time.Time{}
		if !s.compensates {
			rec.Step = d.stepAfter(s.name)
		}
	}
	switch {
	case s.compensates && o.kind != outcomeRetry:
		return end(rec, Canceled, bourse.CodeCanceled, rec.Cancel)
	case !s.compensates && rec.Cancel != "":
		return canceled(d, rec)
	}
	switch o.kind {
	case outcomeDone:
		if rec.Step == "" {
			return end(rec, Succeeded, "", "")
		}
	case outcomeFinish:
		return end(rec, Succeeded, "", "")
	case outcomeRetry:
		return retried(rec, s, o, now, jitter)
	case outcomeAbort, outcomeNone:
		err := o.err
		if err == nil {
			err = errNoOutcome
		}
		return end(rec, Failed, bourse.CodeOf(err), messageOf(err))
	}
	return rec
}

// canceled returns the next record of a canceled run whose step has returned.
func canceled(d *definition, rec Record) Record {
	rec.Attempt, rec.NotBefore = 0, time.Time{}
	if d.onCancel == nil {
		return end(rec, Canceled, bourse.CodeCanceled, rec.Cancel)
	}
	return rec
}

// retried returns a run's new record after a failed attempt of a step.
func retried(rec Record, s *step, o Outcome, now time.Time, jitter float64) Record {
	err := o.err
	if err == nil {
		err = errors.New("the step requested another attempt")
	}
	rec.Code, rec.Error = string(bourse.CodeOf(err)), messageOf(err)
	rec.Attempt++
	if s.Attempts > 0 && rec.Attempt >= s.Attempts {
		rec.Status, rec.NotBefore = Stuck, time.Time{}
		return rec
	}
	wait := o.after
	if wait < 0 {
		wait = backoff(s, rec.Attempt, jitter)
	}
	rec.NotBefore = now.Add(wait).Round(0)
	return rec
}

// backoff returns the delay after the n-th failed attempt. The delay doubles with each attempt, up
// to MaxBackoff. Up to half of it is subtracted at random, so that runs that failed at the same
// time are not retried at the same time.
func backoff(s *step, n int, jitter float64) time.Duration {
	d := min(float64(s.MaxBackoff), float64(s.Backoff)*math.Pow(2, float64(min(n-1, 62))))
	return time.Duration(d/2 + d/2*jitter)
}

func end(rec Record, status Status, code bourse.Code, message string) Record {
	rec.Status, rec.Code, rec.Error = status, string(code), message
	rec.Step, rec.Attempt, rec.NotBefore = "", 0, time.Time{}
	return rec
}

// messageOf returns the text to record: the safe message if err has a code, or the full text of an
// internal error, which only the operator sees.
func messageOf(err error) string {
	if bourse.CodeOf(err) == bourse.CodeInternal {
		return err.Error()
	}
	return bourse.MessageOf(err)
}
