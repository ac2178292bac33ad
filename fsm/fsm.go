package fsm

import (
	"context"
	"encoding/json"
	"time"
)

// Status is where a run is in its life.
type Status string

// The statuses of a run.
const (
	Queued    Status = "queued"   // waits for the run before it on the same resource
	Delayed   Status = "delayed"  // waits for its NotBefore
	Running   Status = "running"  // a step is being executed, or is due again
	Stuck     Status = "stuck"    // a step used up its attempts or its deadline; Retry or Skip it
	Parked    Status = "parked"   // its definition or step is unknown to this release
	Succeeded Status = "done"     // ended well
	Failed    Status = "failed"   // aborted; Error says why
	Canceled  Status = "canceled" // ended by Cancel
)

// Ended reports whether a run in this status will never execute again.
func (s Status) Ended() bool { return s == Succeeded || s == Failed || s == Canceled }

// Record is everything that is kept of a run. A run is rebuilt from its own record
// alone.
type Record struct {
	ID         string          `json:"id"`                 // ULID
	Definition string          `json:"definition"`         // "machine.create"
	Resource   string          `json:"resource"`           // what it acts on: "machine/148e21ea1d5389"
	Parent     string          `json:"parent,omitempty"`   // the run that started it as a child
	Children   []string        `json:"children,omitempty"` // runs that it started with Spawn
	Place      string          `json:"place,omitempty"`    // the run whose place in the queue it has; default its own
	Next       string          `json:"next,omitempty"`     // the run that it handed over to
	Status     Status          `json:"status"`
	Step       string          `json:"step,omitempty"`    // to be executed next, by name
	Attempt    int             `json:"attempt,omitempty"` // of Step; 0 before the first has failed
	NotBefore  time.Time       `json:"not_before,omitzero"`
	Cancel     string          `json:"cancel,omitempty"` // set once cancellation was asked for: why
	Request    json.RawMessage `json:"request,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // as of the last finished step
	Code       string          `json:"code,omitempty"`   // of Error, a bourse code
	Error      string          `json:"error,omitempty"`  // of the last failed attempt, or of the abort
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
}

// Tx is the part of a journal's transaction that the engine uses.
type Tx interface {
	PutRun(Record) error // insert, or replace the record of the same definition, resource and id
	DeleteRun(Record) error
}

// Write is what a caller or a step adds to the engine's own transaction: it
// becomes durable together with the run's transition or not at all. It may run
// more than once (each time in a fresh transaction) and must not block. An
// error undoes the whole transition.
type Write func(Tx) error

// Commit is a submitted transaction.
type Commit interface {
	// Applied is closed when the transaction's function has run without an
	// error and its effects will be seen by every later transaction, or when
	// it has failed. It is not durable yet.
	Applied() <-chan struct{}
	// Wait blocks until the transaction is durable or has failed, or ctx ends
	// (then the outcome is unknown to the caller and the commit goes on).
	Wait(ctx context.Context) error
}

// Journal keeps runs durably. Transactions become durable in the order in
// which they were submitted; many submitted at once share one fsync.
type Journal interface {
	// Submit queues fn and returns at once: the engine calls it under a lock.
	// fn runs on another goroutine.
	Submit(fn func(Tx) error) Commit
	// Unfinished returns every run that has not ended, in the order in which
	// they were created.
	Unfinished() ([]Record, error)
	// Run finds a run, ended ones included while they are kept.
	Run(id string) (Record, bool, error)
}
