package fsmtest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
)

// script defines how the steps of a scripted run behave. Its keys are the steps' names.
type script map[string]act

// act defines how one step behaves.
type act struct {
	Fail   int           // number of attempts that fail first
	Sleep  time.Duration // duration of each attempt, unless the run is canceled or the engine stops
	Abort  bool
	Finish bool
}

// checker observes scripted runs across restarts and records violations of the engine's guarantees.
type checker struct {
	mu       sync.Mutex
	steps    map[string][]string // names of the steps, by definition
	progress map[string]int      // number of durably finished steps, by run
	active   map[string]string   // run that is executing a step, by resource
	problems []string
	defs     []*fsm.Def[script, sum]
}

// newChecker returns a checker with three definitions, of three, two and one steps. The second
// definition has a compensation.
func newChecker() *checker {
	c := &checker{
		steps:    map[string][]string{"a": {"a1", "a2", "a3"}, "b": {"b1", "b2"}, "c": {"c1"}},
		progress: map[string]int{}, active: map[string]string{},
	}
	for _, name := range []string{"a", "b", "c"} {
		d := fsm.Define[script, sum](name)
		for _, s := range c.steps[name] {
			d.Step(s, c.step(name, s), fsm.StepOptions{Timeout: -1, Attempts: 4, Backoff: 50 * time.Millisecond, MaxBackoff: time.Second})
		}
		if name == "b" {
			d.OnCancel(func(_ context.Context, r *fsm.Run[script, sum]) fsm.Outcome {
				defer c.enter(r.Resource, r.ID)()
				if r.Attempt < 1 {
					return fsm.Retry(fmt.Errorf("compensation attempt %d", r.Attempt))
				}
				r.Result.Steps = append(r.Result.Steps, "cancel")
				return fsm.Done()
			})
		}
		c.defs = append(c.defs, d)
	}
	return c
}

func (c *checker) definitions() (out []fsm.Definition) {
	for _, d := range c.defs {
		out = append(out, d)
	}
	return out
}

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// err returns the violations recorded so far.
func (c *checker) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) == 0 {
		return nil
	}
	return fmt.Errorf("%q", c.problems)
}

// learn records a run's progress from a durable record. It is the engine's Observe function, and is
// also called for each unfinished record after a restart.
func (c *checker) learn(rec fsm.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.steps[rec.Definition], rec.Step)
	if at < 0 {
		at = len(c.steps[rec.Definition])
	}
	if at < c.progress[rec.ID] {
		c.problem("run %s regressed from step %d to %d", rec.ID, c.progress[rec.ID], at)
	}
	c.progress[rec.ID] = at
}

// restarted clears the list of executing runs.
func (c *checker) restarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.active)
}

// enter records that a run is executing on a resource, until the returned function is called.
func (c *checker) enter(resource, run string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.active[resource]; other != "" {
		c.problem("runs %s and %s execute at the same time on %s", other, run, resource)
	}
	c.active[resource] = run
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.active, resource)
	}
}

func (c *checker) step(definition, name string) fsm.StepFunc[script, sum] {
	return func(ctx context.Context, r *fsm.Run[script, sum]) fsm.Outcome {
		defer c.enter(r.Resource, r.ID)()
		c.mu.Lock()
		if at := slices.Index(c.steps[definition], name); at != c.progress[r.ID] {
			c.problem("run %s executes step %s, but %d steps are durably finished", r.ID, name, c.progress[r.ID])
		}
		c.mu.Unlock()
		do := r.Request[name]
		pause, cancel := context.WithTimeout(ctx, do.Sleep) // ends at once if there is nothing to wait for
		<-pause.Done()
		cancel()
		if ctx.Err() != nil {
			return fsm.Retry(context.Cause(ctx))
		}
		r.Result.Steps = append(r.Result.Steps, name)
		switch {
		case r.Attempt < do.Fail:
			return fsm.Retry(fmt.Errorf("attempt %d", r.Attempt))
		case do.Abort:
			return fsm.Abort(bourse.Errorf(bourse.CodeConflict, "step %s", name))
		case do.Finish:
			return fsm.Finish()
		}
		return fsm.Done()
	}
}

// want returns the expected final status and finished steps of a run that is not canceled.
func (c *checker) want(definition string, s script) (fsm.Status, []string) {
	var done []string
	for _, name := range c.steps[definition] {
		switch do := s[name]; {
		case do.Abort:
			return fsm.Failed, done
		case do.Finish:
			return fsm.Succeeded, append(done, name)
		}
		done = append(done, name)
	}
	return fsm.Succeeded, done
}
