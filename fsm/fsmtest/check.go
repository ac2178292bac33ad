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

// script is what the steps of a scripted run do, by name.
type script map[string]act

// act is the behaviour of one step.
type act struct {
	Fail   int           // attempts that fail first
	Sleep  time.Duration // before it ends; canceled and stopping runs wake it
	Abort  bool
	Finish bool
}

// checker watches scripted runs over restarts and notes what must not happen.
type checker struct {
	mu       sync.Mutex
	steps    map[string][]string // of each definition
	progress map[string]int      // of each run: how many of its steps are durably finished
	active   map[string]string   // of each resource: the run that executes a step
	problems []string
	defs     []*fsm.Def[script, sum]
}

// newChecker makes a checker with definitions of three, two and one steps; the
// second compensates its cancellation.
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

// err returns what went wrong so far.
func (c *checker) err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.problems) == 0 {
		return nil
	}
	return fmt.Errorf("%q", c.problems)
}

// learn notes the progress that a durable record has of its run. It is the
// engine's Observe, and is called with all unfinished records after a restart.
func (c *checker) learn(rec fsm.Record) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := slices.Index(c.steps[rec.Definition], rec.Step)
	if at < 0 {
		at = len(c.steps[rec.Definition])
	}
	if at < c.progress[rec.ID] {
		c.problem("run %s went back from step %d to %d", rec.ID, c.progress[rec.ID], at)
	}
	c.progress[rec.ID] = at
}

// restarted forgets what was executing.
func (c *checker) restarted() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.active)
}

// enter notes that a run executes on a resource, until the returned function is
// called.
func (c *checker) enter(resource, run string) func() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.active[resource]; other != "" {
		c.problem("runs %s and %s execute at once on %s", other, run, resource)
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
		pause, cancel := context.WithTimeout(ctx, do.Sleep) // no timer for no time
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

// want returns how a run of this definition ends that is not canceled.
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
