package fsm

import (
	"context"
	"encoding/json"
	"time"
)

// Status is the state of a run.
type Status string

// The statuses of a run.
const (
	Queued    Status = "queued"   // waits for its turn on the resource
	Delayed   Status = "delayed"  // waits for its NotBefore
	Running   Status = "running"  // a step is executing or will be retried
	Stuck     Status = "stuck"    // a step has used up its attempts; Retry or Skip it
	Parked    Status = "parked"   // its definition or step is unknown to this release
	Succeeded Status = "done"     // all steps are done
	Failed    Status = "failed"   // aborted; Error contains the reason
	Canceled  Status = "canceled" // ended by Cancel
)

// Ended reports whether a run in this status will never execute again.
func (s Status) Ended() bool { return s == Succeeded || s == Failed || s == Canceled }

// Record contains all durable data of a run. A run is restored from its record alone.
type Record struct {
	ID         string          `json:"id"`                 // ULID
	Definition string          `json:"definition"`         // "machine.create"
	Resource   string          `json:"resource"`           // the object that it changes: "machine/148e21ea1d5389"
	Parent     string          `json:"parent,omitempty"`   // the run that spawned it
	Children   []string        `json:"children,omitempty"` // the runs that it spawned
	Place      string          `json:"place,omitempty"`    // the run whose place in the queue it has; default: its own
	Next       string          `json:"next,omitempty"`     // the run that it handed over to
	Status     Status          `json:"status"`
	Step       string          `json:"step,omitempty"`    // name of the next step to execute
	Attempt    int             `json:"attempt,omitempty"` // failed attempts of Step
	NotBefore  time.Time       `json:"not_before,omitzero"`
	Cancel     string          `json:"cancel,omitempty"` // the cause, once cancellation was requested
	Request    json.RawMessage `json:"request,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // as of the last finished step
	Code       string          `json:"code,omitempty"`   // the bourse code of Error
	Error      string          `json:"error,omitempty"`  // of the last failed attempt, or the abort
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
}

// Tx contains the operations of a journal's transaction that the engine uses.
type Tx interface {
	PutRun(Record) error // inserts, or replaces the record with the same definition, resource and id
	DeleteRun(Record) error
}

// Write is what a caller or step adds to the engine's transaction. It becomes durable together with the run's
// transition or not at all. It may be called more than once, each time in a new transaction, and must not block. An
// error undoes the whole transition.
type Write func(Tx) error

// Commit is a submitted transaction.
type Commit interface {
	// Applied returns a channel that is closed when the transaction's function has run without an error and later
	// transactions will see its effects, or when it has failed. The transaction is not durable yet.
	Applied() <-chan struct{}
	// Wait blocks until the transaction is durable or has failed, or ctx ends. In the last case the outcome is
	// unknown to the caller, and the commit continues.
	Wait(ctx context.Context) error
}

// Journal stores runs durably. Transactions become durable in the order of Submit; concurrent ones share one fsync.
type Journal interface {
	// Submit queues fn and returns at once, because the engine calls it under a lock. fn runs on another goroutine.
	Submit(fn func(Tx) error) Commit
	// Unfinished returns all runs that have not ended, in the order of their creation.
	Unfinished() ([]Record, error)
	// Run returns the run with an id, ended or not, and whether it is recorded.
	Run(id string) (Record, bool, error)
}
