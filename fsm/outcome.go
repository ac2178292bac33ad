package fsm

import "time"

// Outcome is the result of one attempt of a step. The functions below create Outcomes. The zero
// Outcome, which a faulty step may return, aborts the run.
type Outcome struct {
	kind   outcomeKind
	err    error
	after  time.Duration
	writes []Write
}

type outcomeKind int

const (
	outcomeNone outcomeKind = iota
	outcomeDone
	outcomeFinish
	outcomeRetry
	outcomeAbort
)

// finished reports whether the step has completed.
func (o Outcome) finished() bool {
	return o.kind == outcomeDone || o.kind == outcomeFinish
}

// Done completes the step. The run continues with the next step, or ends as done after the last
// one. The writes and the run's Result are committed together with the step's completion.
func Done(writes ...Write) Outcome { return Outcome{kind: outcomeDone, writes: writes} }

// Finish completes the step and the whole run. The remaining steps are not executed.
func Finish(writes ...Write) Outcome { return Outcome{kind: outcomeFinish, writes: writes} }

// Retry requests another attempt of the step after its backoff. This attempt's changes to the run's Result are
// discarded.
func Retry(err error) Outcome { return Outcome{kind: outcomeRetry, err: err, after: -1} }

// RetryAfter requests another attempt of the step after the delay d.
func RetryAfter(d time.Duration, err error) Outcome {
	return Outcome{kind: outcomeRetry, err: err, after: max(0, d)}
}

// Abort ends the run as failed. Its record contains the code and message of err. The writes become durable together
// with the record.
func Abort(err error, writes ...Write) Outcome {
	return Outcome{kind: outcomeAbort, err: err, writes: writes}
}
