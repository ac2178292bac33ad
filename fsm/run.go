package fsm

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"time"
)

// Run is a step's view of its run. It is valid only during the step's call, and must be used by one goroutine at a
// time.
type Run[Req, Res any] struct {
	ID        string // a ULID
	Resource  string
	Step      string // name of the executing step; in OnCancel, the name of the step that would have executed
	Attempt   int    // number of failed attempts of this step
	Failure   string // error of the previous attempt, as recorded; "" in the first attempt
	CreatedAt time.Time
	Cancel    string       // cause of the cancellation; empty if the run has not been canceled
	Request   Req          // the request that started the run; must not be modified
	Result    *Res         // never nil; becomes durable with each finished step
	Log       *slog.Logger // has the attributes run, definition, resource and step

	resultChanged bool // whether Result may differ from the durable result
}

func decodeRun[Req, Res any](rec Record) (untypedRun, error) {
	r := &Run[Req, Res]{ID: rec.ID, Resource: rec.Resource, CreatedAt: rec.CreatedAt, resultChanged: true}
	if err := json.Unmarshal(rec.Request, &r.Request); err != nil {
		return nil, fmt.Errorf("request: %w", err)
	}
	return r, r.prepare(rec, slog.New(slog.DiscardHandler))
}

// prepare sets up r for the next attempt, as described by rec.
func (r *Run[Req, Res]) prepare(rec Record, log *slog.Logger) error {
	r.Step, r.Attempt, r.Cancel, r.Log = rec.Step, rec.Attempt, rec.Cancel, log
	r.Failure = ""
	if rec.Attempt > 0 {
		r.Failure = rec.Error
	}
	// A failed attempt may have modified Result.
	if r.resultChanged || rec.Attempt > 0 {
		r.Result = new(Res)
		if len(rec.Result) > 0 {
			if err := json.Unmarshal(rec.Result, r.Result); err != nil {
				return fmt.Errorf("result: %w", err)
			}
		}
	}
	r.resultChanged = true
	return nil
}

// result encodes Result after a step has finished. From then on, Result is treated as durable.
func (r *Run[Req, Res]) result() (json.RawMessage, error) {
	if r.Result == nil {
		r.Result = new(Res)
	}
	r.resultChanged = false
	return json.Marshal(r.Result)
}
