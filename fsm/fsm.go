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
	Queued    Status = "queued"   // the run waits for its turn on the resource
	Delayed   Status = "delayed"  // the run waits until NotBefore
	Running   Status = "running"  // a step is executing, or the run waits for the step's next attempt
	Stuck     Status = "stuck"    // a step has used up its attempts; call Retry, Skip or Cancel
	Parked    Status = "parked"   // the run's definition, step or request is unknown to this release
	Succeeded Status = "done"     // all steps are done
	Failed    Status = "failed"   // aborted; Error contains the reason
	Canceled  Status = "canceled" // ended by Cancel
)

// Ended reports whether a run with this status has ended and will never execute again.
func (s Status) Ended() bool { return s == Succeeded || s == Failed || s == Canceled }

// Record contains all durable data of a run. A run is restored from its record alone.
type Record struct {
	ID         string          `json:"id"`         // a ULID
	Definition string          `json:"definition"` // name of the definition, such as "machine.create"
	Resource   string          `json:"resource"`   // the object to change, such as "machine/148e21ea1d5389"
	Status     Status          `json:"status"`
	Step       string          `json:"step,omitempty"`    // name of the next step to execute
	Attempt    int             `json:"attempt,omitempty"` // number of failed attempts of Step
	NotBefore  time.Time       `json:"not_before,omitzero"`
	Cancel     string          `json:"cancel,omitempty"` // cause of the cancellation; empty if the run has not been canceled
	Request    json.RawMessage `json:"request,omitempty"`
	Result     json.RawMessage `json:"result,omitempty"` // the run's result as of the last finished step
	Code       string          `json:"code,omitempty"`   // bourse.Code of Error
	Error      string          `json:"error,omitempty"`  // message of the last failed attempt, or of the abort
	CreatedAt  time.Time       `json:"created_at"`
	UpdatedAt  time.Time       `json:"updated_at"`
}

// Tx is the part of a journal transaction that the engine uses.
type Tx interface {
	PutRun(Record) error // inserts a record, or replaces the one with the same definition, resource and id
	DeleteRun(Record) error
}

// Write adds a caller's or step's changes to the transaction that records a run's transition. The
// changes become durable together with the transition, or not at all. Write may be called more
// than once, each time in a new transaction, and must not block. If it returns an error, the whole
// transition is undone.
type Write func(Tx) error

// Commit is a submitted transaction.
type Commit interface {
	// Applied returns a channel that is closed once the transaction's function has returned nil, or once the
	// transaction has failed. In the first case, later transactions see its effects, which may not be durable yet.
	Applied() <-chan struct{}
	// Wait blocks until the transaction is durable or has failed, or ctx is done. If ctx is
	// done first, the outcome is unknown to the caller, and the commit continues.
	Wait(ctx context.Context) error
}

// Journal stores runs durably. Transactions become durable in the order in which they were submitted. Concurrent
// transactions share one fsync.
type Journal interface {
	// Submit queues fn, which runs on another goroutine. Submit must not block, because the engine calls it while
	// holding a lock.
	Submit(fn func(Tx) error) Commit
	// Unfinished returns all runs that have not ended, in order of creation.
	Unfinished() ([]Record, error)
	// Run returns the record of the run with the given id, even if the run has ended. It also reports whether there
	// is such a record.
	Run(id string) (Record, bool, error)
}
