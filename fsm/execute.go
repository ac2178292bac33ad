package fsm

import (
	"context"
	"errors"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/bourse-dev/bourse"
)

// work executes ent as far as possible. It then does the same with the next run on the same resource, until no run
// can execute.
func (e *Engine) work(ent *entry) {
	for ent != nil {
		ent = e.execute(ent)
	}
}

// execute executes a busy run until the run ends, has to wait, or is stuck or parked, or until the engine stops. It
// returns the next run to execute on the resource, or nil.
func (e *Engine) execute(ent *entry) *entry {
	var run untypedRun
	for {
		s, rec, ctx, cancel := e.step(ent)
		if s == nil {
			return e.nextAfter(ent)
		}
		var err error
		log := e.logger(rec)
		if run == nil {
			run, err = ent.def.decode(rec)
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
			return e.nextAfter(ent) // the engine has interrupted the step, so the step executes again after the restart
		}
		proceed, ok := e.transition(ent, s, o, run, log)
		if !ok || !proceed {
			return e.nextAfter(ent)
		}
	}
}

// step returns the step that ent must execute now, ent's record, and a context for the step. The step is nil if the run
// has ended or the engine is stopping.
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

// returnGrace is how long a step may continue past its deadline before an error is logged. A step that ignores its ctx
// cannot be stopped, and its resource remains blocked.
const returnGrace = 5 * time.Second

// call executes one attempt of a step.
func call(ctx context.Context, s *step, run untypedRun, log *slog.Logger) (o Outcome) {
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.Timeout, bourse.Errorf(bourse.CodeTimeout, "step %s took longer than %s", s.name, s.Timeout))
		defer cancel()
		late := time.AfterFunc(s.Timeout+returnGrace, func() { log.Error("step still running past its deadline") })
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

// nextAfter suspends the execution of ent and returns the next run to execute on the resource.
func (e *Engine) nextAfter(ent *entry) *entry {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.busy, ent.stop = false, nil
	return e.schedule(e.queue(ent.resource))
}

// park parks a run whose record this release cannot decode. It returns the next run to execute on
// the resource.
func (e *Engine) park(ent *entry, err error) *entry {
	e.mu.Lock()
	ent.parked = err.Error()
	rec := e.show(ent)
	e.mu.Unlock()
	e.report(rec)
	return e.nextAfter(ent)
}
