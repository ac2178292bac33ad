package view

import (
	"context"
	"fmt"

	"github.com/bourse-dev/bourse"
)

// job is a change that a caller waits for.
type job struct {
	ownCommit bool               // whether the job is so large that it needs a separate commit
	do        func(*batch) error // applies the change; called again if the commit fails because of any job or row in it
	abandoned func() bool        // reports whether the caller has stopped waiting, so the job can be skipped
	done      chan error         // receives the result; buffered
}

// submit adds a job to the writer's next commit and waits for it.
func (v *View) submit(ctx context.Context, alone bool, do func(*batch) error) error {
	j := &job{ownCommit: alone, do: do, abandoned: func() bool { return ctx.Err() != nil }, done: make(chan error, 1)}
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
		return fmt.Errorf("wait until the view's file is written: %w", context.Cause(ctx))
	}
}

func errEnded() error { return bourse.Errorf(bourse.CodeUnavailable, "the view has been closed") }

// errRefused converts the error of a failed job into the error for the job's caller.
func errRefused(err error) error {
	if code := bourse.CodeOf(err); code != bourse.CodeInternal {
		return err
	}
	switch failureOf(err) {
	case failUnavailable, failDamaged, failKilled:
		return bourse.Errorf(bourse.CodeUnavailable, "the view's file cannot be written: %w", err)
	case failBadRow:
	}
	return err
}

// takeJobs returns the jobs for the next commit: either a single large job, or all jobs before the first large
// one.
func (w *writer) takeJobs() []*job {
	w.view.mu.Lock()
	defer w.view.mu.Unlock()
	n := 0
	for n < len(w.view.jobs) && !w.view.jobs[n].ownCommit {
		n++
	}
	if n == 0 && len(w.view.jobs) > 0 {
		n = 1
	}
	out := w.view.jobs[:n:n]
	w.view.jobs = w.view.jobs[n:]
	return out
}

// poke wakes the writer.
func (v *View) poke() {
	select {
	case v.work <- struct{}{}:
	default: // a wake-up is already pending
	}
}
