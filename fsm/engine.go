package fsm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/quiet"
)

// Config configures an Engine.
type Config struct {
	Journal  Journal      // stores the runs; required
	Log      *slog.Logger // default: discards all records
	MaxQueue int          // maximum number of runs that wait for one resource; default DefaultMaxQueue
	// Observe, if set, is called after each durable transition. Calls for the same run are made in
	// order; calls for different runs may be concurrent. Observe must not block.
	Observe func(Record)
}

// DefaultMaxQueue is the default of [Config.MaxQueue].
const DefaultMaxQueue = 16

// Engine executes runs. All its methods are safe for concurrent use.
type Engine struct {
	cfg     Config // includes the defaults
	resumed chan struct{}
	stopped chan struct{}
	workers sync.WaitGroup

	// loading is held while unfinished runs are read. It is acquired before mu.
	loading sync.Mutex
	loaded  bool

	mu     sync.Mutex // never held during I/O or a callback
	phase  phase
	begin  func() (context.Context, context.CancelCauseFunc) // creates the context of a step; set by Run
	defs   map[string]*definition
	runs   map[string]*entry
	queues map[string]*queue
	ids    idSource

	unrecorded quiet.Line // limits the log lines about finished steps that the journal does not accept
}

type phase int

const (
	phaseNew phase = iota
	phaseRunning
	phaseStopping
)

// errStopping is the cancellation cause of a step's ctx when the engine stops.
var errStopping = errors.New("the engine is stopping")

// New returns an engine. No run executes until [Engine.Run] is called.
func New(cfg Config) *Engine {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.MaxQueue <= 0 {
		cfg.MaxQueue = DefaultMaxQueue
	}
	if cfg.Observe == nil {
		cfg.Observe = func(Record) {}
	}
	return &Engine{
		cfg: cfg, resumed: make(chan struct{}), stopped: make(chan struct{}),
		defs: map[string]*definition{}, runs: map[string]*entry{}, queues: map[string]*queue{},
	}
}

// Register adds definitions. It must be called before Run. It panics if a name is registered
// twice or if a definition has no steps.
func (e *Engine) Register(defs ...Definition) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, def := range defs {
		d := def.untyped()
		if e.defs[d.name] != nil || len(d.steps) == 0 {
			panic(fmt.Sprintf("fsm: definition %q is registered twice or has no steps", d.name))
		}
		e.defs[d.name] = d
	}
}

// Run resumes every unfinished run and executes runs until ctx is done. It then cancels the ctx of
// executing steps. Interrupted steps will execute again after the next start. Run returns when all
// steps have returned. It must be called only once.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.load(); err != nil {
		return err
	}
	steps, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	defer stop(nil)
	if err := e.resume(func() (context.Context, context.CancelCauseFunc) { return context.WithCancelCause(steps) }); err != nil {
		return err
	}
	close(e.resumed)
	<-ctx.Done()

	e.mu.Lock()
	e.phase = phaseStopping
	for _, q := range e.queues {
		q.stopTimer()
	}
	e.mu.Unlock()
	stop(errStopping)
	e.workers.Wait()
	close(e.stopped)
	return nil
}

// Resumed returns a channel that is closed once every unfinished run has been loaded and scheduled.
func (e *Engine) Resumed() <-chan struct{} { return e.resumed }

// load reads the unfinished runs from the journal, unless it has already done so.
func (e *Engine) load() error {
	e.loading.Lock()
	defer e.loading.Unlock()
	if e.loaded {
		return nil
	}
	records, err := e.cfg.Journal.Unfinished()
	if err != nil {
		return fmt.Errorf("read unfinished runs: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, rec := range records {
		ent := newEntry(rec)
		ent.recorded = closedChan
		e.runs[rec.ID] = ent
		e.queue(rec.Resource).load(ent)
		e.ids.advancePast(rec.ID)
	}
	e.loaded = true
	return nil
}

// resume schedules the unfinished runs and parks those with a definition or step that this release
// does not know.
func (e *Engine) resume(begin func() (context.Context, context.CancelCauseFunc)) error {
	e.mu.Lock()
	if e.phase != phaseNew {
		e.mu.Unlock()
		return bourse.Errorf(bourse.CodeFailedPrecondition, "the engine was already started")
	}
	e.phase, e.begin = phaseRunning, begin
	var parked []Record
	for _, ent := range e.runs {
		ent.def = e.defs[ent.definition]
		if ent.parked = e.unknownPart(ent); ent.parked != "" {
			parked = append(parked, e.show(ent))
		}
	}
	for _, q := range e.queues {
		e.launch(q)
	}
	e.mu.Unlock()
	for _, rec := range parked {
		e.report(rec)
	}
	return nil
}

// unknownPart describes the part of a run that this release does not know, or returns "" if it
// knows all parts. A canceled run's step may be unknown, because only the compensation will
// execute.
func (e *Engine) unknownPart(ent *entry) string {
	switch {
	case ent.def == nil:
		return fmt.Sprintf("unknown definition %q", ent.definition)
	case ent.rec.Cancel == "" && ent.def.step(ent.rec.Step) == nil:
		return fmt.Sprintf("unknown step %q", ent.rec.Step)
	}
	return ""
}

// report logs a parked run for the operator.
func (e *Engine) report(rec Record) {
	e.logger(rec).Error("run parked", "reason", rec.Error)
	e.cfg.Observe(rec)
}

func (e *Engine) logger(rec Record) *slog.Logger {
	return e.cfg.Log.With("run", rec.ID, "definition", rec.Definition, "step", rec.Step, "resource", rec.Resource)
}

// queue returns the queue of a resource, creating it if necessary. e.mu is held.
func (e *Engine) queue(resource string) *queue {
	q := e.queues[resource]
	if q == nil {
		q = &queue{resource: resource}
		e.queues[resource] = q
	}
	return q
}

// launch starts a goroutine that executes the next run of q. If the run is not due yet, launch
// instead sets the queue's timer. e.mu is held.
func (e *Engine) launch(q *queue) {
	if ent := e.schedule(q); ent != nil {
		e.workers.Go(func() { e.work(ent) })
	}
}

// schedule returns the run of q to execute now and marks it as busy. If there is none, it returns
// nil, and sets the queue's timer if a run is due later. e.mu is held.
func (e *Engine) schedule(q *queue) *entry {
	if e.phase != phaseRunning {
		return nil
	}
	ent, due := q.next(time.Now())
	switch {
	case ent != nil:
		ent.busy = true
	case !due.IsZero():
		q.setTimer(due, func() {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.launch(q)
		})
	case q.empty() && e.queues[q.resource] == q:
		delete(e.queues, q.resource)
	}
	return ent
}
