package fsm

import (
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds of the delay before a transition is submitted again that the journal has not accepted.
const (
	minJournalPause = 10 * time.Millisecond
	maxJournalPause = 2 * time.Second
)

// transition makes the outcome of a step durable. It tries again until that succeeds or the engine
// stops. proceed reports whether the run continues at once. If ok is false, the engine has stopped
// first, and the step executes again after the restart.
func (e *Engine) transition(ent *entry, s *step, o Outcome, run untypedRun, log *slog.Logger) (proceed, ok bool) {
	var result []byte
	if o.finished() {
		var err error
		if result, err = run.result(); err != nil {
			o = Abort(bourse.Errorf(bourse.CodeInternal, "result of step %s: %w", s.name, err))
		}
	}
	pause := minJournalPause
	for {
		<-ent.token
		t, started, err := e.advance(ent, s, o, result)
		if err == nil {
			err = e.settle(ent, t, started)
		}
		ent.token <- struct{}{}
		switch {
		case err == nil:
			e.logTransition(log, s, o, t.records[0])
			rec := t.records[0]
			return rec.Status == Running && !rec.NotBefore.After(time.Now()), true
		case t == nil || t.refused != nil:
			log.Warn("step transaction refused", "err", err)
			o = Retry(err)
			e.withdraw(ent)
			continue
		}
		if kept, ok := e.unrecorded.Due(); ok {
			log.Error("record finished step failed", "err", err, "not_logged", kept)
		}
		if !e.pause(ent, pause) {
			return false, false
		}
		pause = min(2*pause, maxJournalPause)
	}
}

// pause waits for d. It returns false if the engine stops first.
func (e *Engine) pause(ent *entry, d time.Duration) bool {
	e.mu.Lock()
	if e.phase != phaseRunning {
		e.mu.Unlock()
		return false
	}
	ctx, cancel := e.begin()
	ent.stop = nil
	e.mu.Unlock()
	defer cancel(nil)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// advance submits the transition of ent that follows from outcome o, together with the first
// records of the runs that the outcome starts.
func (e *Engine) advance(ent *entry, s *step, o Outcome, result []byte) (*transaction, []*entry, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.stop = nil
	now := time.Now()
	next := ent.final // if this has ended, Applied may already have returned this record to a caller
	if !next.Status.Ended() {
		next = decide(ent.def, ent.rec, s, o, result, now, rand.Float64())
	}
	var started []*entry
	if o.kind == outcomeHandover && next.Status == Succeeded || o.kind == outcomeDone && next.Cancel == "" {
		var err error
		if started, err = e.enqueueAll(ent, o, now); err != nil {
			return nil, nil, err
		}
	}
	for _, x := range started {
		if o.kind == outcomeHandover {
			next.Next = x.id
		} else {
			next.Children = append(slices.Clip(next.Children), x.id)
		}
	}
	t := &transaction{records: []Record{next}, writes: o.writes}
	for _, x := range started {
		t.records = append(t.records, x.rec)
	}
	ent.finishing = next.Status.Ended()
	t.submit(e.cfg.Journal)
	return t, started, nil
}

// enqueueAll enqueues the runs that an outcome starts. e.mu is held.
func (e *Engine) enqueueAll(ent *entry, o Outcome, now time.Time) ([]*entry, error) {
	for _, st := range o.starts {
		switch same := st.resource == "" || st.resource == ent.resource; {
		case st.err != nil:
			return nil, st.err
		case e.defs[st.def.name] != st.def:
			return nil, bourse.Errorf(bourse.CodeInternal, "definition %s is not registered", st.def.name)
		case same != (o.kind == outcomeHandover):
			return nil, bourse.Errorf(bourse.CodeInternal, "invalid resource %s: a run hands over on its own resource and spawns children on others", bourse.Quoted(st.resource))
		case !same && !validName(st.resource):
			return nil, bourse.Errorf(bourse.CodeInvalid, "invalid resource %s", bourse.Quoted(st.resource))
		}
	}
	var out []*entry
	for _, st := range o.starts {
		rec := Record{Definition: st.def.name, Resource: st.resource, Request: st.request}
		if o.kind == outcomeHandover {
			rec.Resource, rec.Place = ent.resource, placeOf(ent.rec).id
		} else {
			rec.Parent = ent.id
		}
		x := e.enqueue(e.queue(rec.Resource), st.def, rec, now)
		if o.kind == outcomeHandover {
			x.rec.Status = Running // Running, so that the new run also owns the resource after a restart
		}
		out = append(out, x)
	}
	return out, nil
}

// settle waits until the transition is durable, and then makes its record the run's current one.
func (e *Engine) settle(ent *entry, t *transaction, started []*entry) error {
	next := t.records[0]
	if next.Status.Ended() && t.applied() {
		e.announce(ent, next)
	}
	if err := t.wait(); err != nil {
		for _, x := range started {
			e.reject(x, err)
		}
		e.mu.Lock()
		ent.finishing = ent.final.Status.Ended()
		e.mu.Unlock()
		return err
	}
	if next.Status.Ended() {
		e.announce(ent, next)
	}
	e.cfg.Observe(next)
	for _, x := range started {
		e.cfg.Observe(x.rec)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.rec, ent.due = next, dueOf(next, time.Now())
	q := e.queue(ent.resource)
	if next.Status.Ended() {
		q.remove(ent)
		delete(e.runs, ent.id)
		close(ent.done)
	}
	for _, x := range started {
		close(x.recorded)
		if x.resource == ent.resource {
			q.take(x)
			continue
		}
		e.launch(e.queue(x.resource))
	}
	return nil
}

// announce notifies the callers of Handle.Applied, which wait for the run's end but not for the
// disk. The caller holds the run's turn.
func (e *Engine) announce(ent *entry, final Record) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.final = final
	closeOnce(ent.applied)
}

// closeOnce closes a channel unless it is closed already. All callers must hold the same lock.
func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

// withdraw revokes the announced end of a run whose transition has been refused after all.
func (e *Engine) withdraw(ent *entry) {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.final, ent.finishing = Record{}, false
}

// logTransition logs a transition, at a level that depends on its importance to operators.
func (e *Engine) logTransition(log *slog.Logger, s *step, o Outcome, rec Record) {
	switch {
	case rec.Status == Stuck:
		log.Error("run stuck", "attempts", rec.Attempt, "err", o.err)
	case rec.Status == Failed:
		log.Warn("run failed", "code", rec.Code, "err", o.err)
	case rec.Status == Canceled:
		log.Info("run canceled", "cause", rec.Cancel)
	case o.kind == outcomeRetry:
		log.Warn("step failed, will retry", "attempt", rec.Attempt, "at", rec.NotBefore, "err", o.err)
	default:
		log.Debug("step done", "executed", s.name, "status", string(rec.Status))
	}
}
