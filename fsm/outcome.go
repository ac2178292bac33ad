package fsm

import (
	"encoding/json"
	"time"
)

// Outcome is the result of one attempt of a step. The functions below create Outcomes. The zero
// Outcome, which a faulty step may return, aborts the run.
type Outcome struct {
	kind   outcomeKind
	err    error
	after  time.Duration
	writes []Write
	starts []Starter
}

type outcomeKind int

const (
	outcomeNone outcomeKind = iota
	outcomeDone
	outcomeFinish
	outcomeHandover
	outcomeRetry
	outcomeAbort
)

// finished reports whether the step has completed.
func (o Outcome) finished() bool {
	return o.kind == outcomeDone || o.kind == outcomeFinish || o.kind == outcomeHandover
}

// Done completes the step. The run continues with the next step, or ends as done after the last
// one. The writes and the run's Result are committed together with the step's completion.
func Done(writes ...Write) Outcome { return Outcome{kind: outcomeDone, writes: writes} }

// Finish completes the step and the whole run. The remaining steps are not executed.
func Finish(writes ...Write) Outcome { return Outcome{kind: outcomeFinish, writes: writes} }

// Retry requests another attempt of the step after its backoff. Changes to the run's Result that
// this attempt has made are dropped.
func Retry(err error) Outcome { return Outcome{kind: outcomeRetry, err: err, after: -1} }

// RetryAfter requests another attempt of the step after the delay d.
func RetryAfter(d time.Duration, err error) Outcome {
	return Outcome{kind: outcomeRetry, err: err, after: max(0, d)}
}

// Abort ends the run as failed. Its record contains the code and message of err, and the writes become durable with
// it.
func Abort(err error, writes ...Write) Outcome {
	return Outcome{kind: outcomeAbort, err: err, writes: writes}
}

// Handover ends the run as done and, in the same transaction, starts another run on the same
// resource. The new run executes before all waiting runs.
func Handover(next Starter, writes ...Write) Outcome {
	return Outcome{kind: outcomeHandover, starts: []Starter{next}, writes: writes}
}

// Spawn is like Done, but also starts child runs in the same transaction, each on a resource of
// its own (see [Starter.On]). A child is started exactly once, even after a crash. A later step
// can wait for the children with [Run.Children].
func Spawn(children []Starter, writes ...Write) Outcome {
	return Outcome{kind: outcomeDone, starts: children, writes: writes}
}

// Starter describes a run that another run's outcome starts; see [Def.With].
type Starter struct {
	def      *definition
	resource string
	request  json.RawMessage
	err      error
}

// On sets the resource of the run. The default is the resource of the run that starts it.
func (s Starter) On(resource string) Starter {
	s.resource = resource
	return s
}
