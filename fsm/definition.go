package fsm

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// StepFunc implements a step of a definition. It may execute more than once, because of a crash, a Retry, or a refused
// transaction. ctx is done at the step's deadline, when the run is canceled, or when the engine stops. ctx's cause
// distinguishes these cases.
type StepFunc[Req, Res any] func(ctx context.Context, r *Run[Req, Res]) Outcome

// StepOptions configures a step. The zero value means the defaults.
type StepOptions struct {
	Timeout    time.Duration // deadline of each attempt; default DefaultTimeout; negative means none
	Attempts   int           // number of attempts before the run is stuck; default DefaultAttempts; negative means no limit
	Backoff    time.Duration // delay before the second attempt, doubled for each further attempt; default DefaultBackoff
	MaxBackoff time.Duration // maximum delay; default DefaultMaxBackoff
}

// Defaults of StepOptions.
const (
	DefaultTimeout    = 30 * time.Second
	DefaultAttempts   = 10
	DefaultBackoff    = 100 * time.Millisecond
	DefaultMaxBackoff = 30 * time.Second
)

func (o StepOptions) withDefaults() StepOptions {
	if o.Timeout == 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Attempts == 0 {
		o.Attempts = DefaultAttempts
	}
	if o.Backoff <= 0 {
		o.Backoff = DefaultBackoff
	}
	if o.MaxBackoff <= 0 {
		o.MaxBackoff = DefaultMaxBackoff
	}
	return o
}

// Definition is a [Def] with any type arguments; see [Engine.Register].
type Definition interface {
	// Name returns the name under which the definition's runs are recorded.
	Name() string
	untyped() *definition
}

// Def defines a state machine. It consists of named steps, which are executed in order. Each run has a request of type
// Req and a result of type Res, which are recorded as JSON. The names of the definition and its steps are part of the
// durable records. If a definition or step is renamed, runs whose records contain the former name are parked.
type Def[Req, Res any] struct{ d *definition }

// definition is a Def without its type parameters.
type definition struct {
	name     string
	steps    []*step
	onCancel *step // if nil, a canceled run ends without compensation
	decode   func(rec Record) (untypedRun, error)
}

type step struct {
	name        string
	compensates bool // whether this is the definition's OnCancel
	StepOptions
	fn func(ctx context.Context, r untypedRun) Outcome
}

// untypedRun is a [Run] with any type arguments.
type untypedRun interface {
	prepare(rec Record, log *slog.Logger) error
	result() (json.RawMessage, error)
}

// maxName is the maximum length, in bytes, of the name of a definition, step or resource.
const maxName = 512

// validName reports whether s can be part of a record's key.
func validName(s string) bool {
	return s != "" && len(s) <= maxName && !strings.ContainsRune(s, 0)
}

// Define returns a new definition without steps. It panics if the name cannot be part of a record's key.
func Define[Req, Res any](name string) *Def[Req, Res] {
	if !validName(name) {
		panic(fmt.Sprintf("fsm: definition name %q", name))
	}
	return &Def[Req, Res]{d: &definition{name: name, decode: decodeRun[Req, Res]}}
}

// Step adds a step. It panics if the name is invalid or not unique in the definition. All steps must be added before
// Register.
func (d *Def[Req, Res]) Step(name string, fn StepFunc[Req, Res], options ...StepOptions) *Def[Req, Res] {
	if !validName(name) || d.d.step(name) != nil {
		panic(fmt.Sprintf("fsm: %s: step name %q", d.d.name, name))
	}
	d.d.steps = append(d.d.steps, newStep(name, fn, options))
	return d
}

// OnCancel sets the step that executes instead of the remaining steps when a run is canceled, even
// if no step has executed yet. The run then ends as canceled, in the transaction that commits the
// step's writes. Like any other step, it has a deadline, attempts and backoff, and can get stuck.
func (d *Def[Req, Res]) OnCancel(fn StepFunc[Req, Res], options ...StepOptions) *Def[Req, Res] {
	d.d.onCancel = newStep("cancel", fn, options)
	d.d.onCancel.compensates = true
	return d
}

func newStep[Req, Res any](name string, fn StepFunc[Req, Res], options []StepOptions) *step {
	s := &step{name: name, fn: func(ctx context.Context, r untypedRun) Outcome { return fn(ctx, r.(*Run[Req, Res])) }}
	if len(options) > 0 {
		s.StepOptions = options[0]
	}
	s.StepOptions = s.withDefaults()
	return s
}

// Name returns the name under which the definition's runs are recorded.
func (d *Def[Req, Res]) Name() string { return d.d.name }

func (d *Def[Req, Res]) untyped() *definition { return d.d }

func encodeRequest(d *definition, req any) (json.RawMessage, error) {
	raw, err := json.Marshal(req)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "request of %s: %w", d.name, err)
	}
	return raw, nil
}

func (d *definition) step(name string) *step {
	for _, s := range d.steps {
		if s.name == name {
			return s
		}
	}
	return nil
}

// stepAfter returns the name of the step after name, or "" after the last one.
func (d *definition) stepAfter(name string) string {
	for i, s := range d.steps {
		if s.name == name && i+1 < len(d.steps) {
			return d.steps[i+1].name
		}
	}
	return ""
}

// noCompensation is the step that a canceled run executes if its definition has no OnCancel. It
// does nothing.
var noCompensation = &step{
	name: "cancel", compensates: true, StepOptions: StepOptions{}.withDefaults(),
	fn: func(context.Context, untypedRun) Outcome { return Done() },
}

// compensation returns the step that a canceled run executes.
func (d *definition) compensation() *step {
	if d.onCancel != nil {
		return d.onCancel
	}
	return noCompensation
}
