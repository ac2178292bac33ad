package view

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// job is a change that a caller waits for.
type job struct {
	alone bool               // has a commit of its own: it is large
	do    func(*batch) error // may be called again when its batch failed for another's fault
	given func() bool        // its caller has given up: nothing needs to be done
	done  chan error         // holds one: the answer
}

// submit has the writer do something in its next commit and waits for it.
func (v *View) submit(ctx context.Context, alone bool, do func(*batch) error) error {
	j := &job{alone: alone, do: do, given: func() bool { return ctx.Err() != nil }, done: make(chan error, 1)}
	v.mu.Lock()
	ended := v.ended
	if !ended {
		v.jobs = append(v.jobs, j)
	}
	v.mu.Unlock()
	if ended {
		return errEnded()
	}
	v.poke()
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the view's file: %w", context.Cause(ctx))
	}
}

func errEnded() error { return bourse.Errorf(bourse.CodeUnavailable, "the view has been closed") }

// errRefused returns why a job was not done, for its caller.
func errRefused(err error) error {
	if code := bourse.CodeOf(err); code != bourse.CodeInternal {
		return err
	}
	switch fateOf(err) {
	case fateUnavailable, fateDamaged, fateKilled:
		return bourse.Errorf(bourse.CodeUnavailable, "the view's file cannot be written: %w", err)
	case fateBadRow:
	}
	return err
}

// takeJobs returns the jobs of the next commit: one that is alone, or all up to
// it.
func (w *writer) takeJobs() []*job {
	w.v.mu.Lock()
	defer w.v.mu.Unlock()
	n := 0
	for n < len(w.v.jobs) && !w.v.jobs[n].alone {
		n++
	}
	if n == 0 && len(w.v.jobs) > 0 {
		n = 1
	}
	out := w.v.jobs[:n:n]
	w.v.jobs = w.v.jobs[n:]
	return out
}

// poke wakes the writer.
func (v *View) poke() {
	select {
	case v.work <- struct{}{}:
	default: // it will wake anyway
	}
}
