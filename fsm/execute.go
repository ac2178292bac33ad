package fsm

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/bourse-dev/bourse"
)

// work executes ent as far as it goes now, then the run that has its turn on the
// same resource.
func (e *Engine) work(ent *entry) {
	for ent != nil {
		ent = e.execute(ent)
	}
}

// execute executes one busy run until it ends, waits, is stuck or parked, or
// the engine stops, and returns the run that has its turn then.
func (e *Engine) execute(ent *entry) *entry {
	var run typedRun
	for {
		s, rec, ctx, cancel := e.step(ent)
		if s == nil {
			return e.yield(ent)
		}
		var err error
		log := e.logger(rec)
		if run == nil {
			run, err = ent.def.decode(e, rec)
		}
		if err == nil {
			err = run.prepare(rec, log)
		}
		if err != nil {
			cancel(nil)
			return e.park(ent, err)
		}
		o := call(ctx, s, run, log)
		stopping := errors.Is(context.Cause(ctx), errStopping)
		cancel(nil)
		if stopping && !o.finished() {
			return e.yield(ent) // interrupted by us: it executes again after the restart
		}
		again, ok := e.transition(ent, s, o, run, log)
		if !ok || !again {
			return e.yield(ent)
		}
	}
}

// step returns the step of ent that executes now, with its record and its ctx;
// nil when none does.
func (e *Engine) step(ent *entry) (*step, Record, context.Context, context.CancelCauseFunc) {
	e.mu.Lock()
	defer e.mu.Unlock()
	rec := ent.rec
	if e.phase != phaseRunning || rec.Status.Ended() {
		return nil, rec, nil, nil
	}
	s := ent.def.step(rec.Step)
	if rec.Cancel != "" {
		s = ent.def.compensation()
	}
	ctx, cancel := e.begin()
	ent.stop = cancel
	return s, rec, ctx, cancel
}

// graceToReturn is how long past its deadline a step may take to return before
// a warning is logged. Nothing can end it, and no other run gets its resource.
const graceToReturn = 5 * time.Second

// call executes one attempt of a step.
func call(ctx context.Context, s *step, run typedRun, log *slog.Logger) (o Outcome) {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, bourse.Errorf(bourse.CodeTimeout, "step %s took longer than %s", s.name, s.Timeout))
		defer cancel()
		late := time.AfterFunc(s.Timeout+graceToReturn, func() { log.Error("step goes on past its deadline") })
		defer late.Stop()
	}
	defer func() {
		if v := recover(); v != nil {
			log.Error("step panicked", "err", v, "stack", string(debug.Stack()))
			o = Abort(bourse.Errorf(bourse.CodeInternal, "step %s panicked: %v", s.name, v))
		}
	}()
	return s.fn(ctx, run)
}

// yield ends the execution of ent for now and returns the run that has its turn.
func (e *Engine) yield(ent *entry) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.busy, ent.stop = false, nil
	return e.schedule(e.queue(ent.resource))
}

// park parks a run that this release cannot read.
func (e *Engine) park(ent *entry, err error) *entry {
	e.mu.Lock()
	ent.parked = err.Error()
	rec := e.show(ent)
	e.mu.Unlock()
	e.report(rec)
	return e.yield(ent)
}
