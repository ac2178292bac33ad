package fsm

import (
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds on the delay before a failed transition is submitted again.
const (
	minJournalPause = 10 * time.Millisecond
	maxJournalPause = 2 * time.Second
)

// transition makes the outcome of a step durable. It retries until it succeeds or the engine stops. proceed reports
// whether the run continues immediately. If ok is false, the engine stopped before the outcome was durable, and the
// step executes again after the restart.
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
		t := e.advance(ent, s, o, result)
		err := e.settle(ent, t)
		ent.token <- struct{}{}
		switch {
		case err == nil:
			e.logTransition(log, s, o, t.record)
			return t.record.Status == Running && !t.record.NotBefore.After(time.Now()), true
		case t.refused != nil:
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

// advance submits the transition of ent that follows from outcome o.
func (e *Engine) advance(ent *entry, s *step, o Outcome, result []byte) *transaction {
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.stop = nil
	now := time.Now()
	next := ent.final // if this has ended, Applied may already have returned this record to a caller
	if !next.Status.Ended() {
		next = decide(ent.def, ent.rec, s, o, result, now, rand.Float64())
	}
	t := &transaction{record: next, writes: o.writes}
	ent.finishing = next.Status.Ended()
	t.submit(e.cfg.Journal)
	return t
}

// settle waits until a transition is durable. The transition's record then becomes the run's current record.
func (e *Engine) settle(ent *entry, t *transaction) error {
	next := t.record
	if next.Status.Ended() && t.applied() {
		e.announce(ent, next)
	}
	if err := t.wait(); err != nil {
		e.mu.Lock()
		ent.finishing = ent.final.Status.Ended()
		e.mu.Unlock()
		return err
	}
	if next.Status.Ended() {
		e.announce(ent, next)
	}
	e.cfg.Observe(next)
	e.mu.Lock()
	defer e.mu.Unlock()
	ent.rec, ent.due = next, dueOf(next, time.Now())
	q := e.queue(ent.resource)
	if next.Status.Ended() {
		q.remove(ent)
		delete(e.runs, ent.id)
		close(ent.done)
	}
	return nil
}

// announce notifies the callers of Handle.Applied, which wait until the run has ended but do not wait for the disk. The
// caller holds the run's token (see doc.go).
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

// withdraw undoes announce after the run's last transition was refused, because the run then continues.
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
