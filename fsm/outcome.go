package fsm

import (
	"encoding/json"
	"time"
)

// Outcome is the result of a step's attempt. It is made by one of the functions
// below; the zero Outcome is that of a step that forgot to return one, and
// aborts the run.
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

// finished reports whether the step has done its work.
func (o Outcome) finished() bool {
	return o.kind == outcomeDone || o.kind == outcomeFinish || o.kind == outcomeHandover
}

// Done ends the step well: the next one executes, or the run ends as done
// after the last. The writes and the run's Result become durable with it.
func Done(writes ...Write) Outcome { return Outcome{kind: outcomeDone, writes: writes} }

// Finish ends the step and the whole run well: the remaining steps are not
// executed.
func Finish(writes ...Write) Outcome { return Outcome{kind: outcomeFinish, writes: writes} }

// Retry asks for another attempt of the step after its backoff. Changes that
// this attempt made to the Result are dropped.
func Retry(err error) Outcome { return Outcome{kind: outcomeRetry, err: err, after: -1} }

// RetryAfter asks for another attempt of the step after d.
func RetryAfter(d time.Duration, err error) Outcome {
	return Outcome{kind: outcomeRetry, err: err, after: max(0, d)}
}

// Abort ends the run as failed. The code and the message of err are
// part of its record, and the writes become durable with it.
func Abort(err error, writes ...Write) Outcome {
	return Outcome{kind: outcomeAbort, err: err, writes: writes}
}

// Handover ends the run as done and, in the same transaction, starts another
// one on the same resource, which takes its place before all that wait there.
func Handover(next Starter, writes ...Write) Outcome {
	return Outcome{kind: outcomeHandover, starts: []Starter{next}, writes: writes}
}

// Spawn is Done that also starts child runs, each on a resource of its own
// (see [Starter.On]), in the same transaction: a child is started exactly
// once, whatever crashes. A later step waits for them with [Run.Children].
func Spawn(children []Starter, writes ...Write) Outcome {
	return Outcome{kind: outcomeDone, starts: children, writes: writes}
}

// Starter is a run to be started by the outcome of another; see [Def.With].
type Starter struct {
	def      *definition
	resource string
	request  json.RawMessage
	err      error
}

// On sets which resource the run acts on. The default is the resource of the
// run that starts it.
func (s Starter) On(resource string) Starter {
	s.resource = resource
	return s
}
