package run

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Bounds of looking at machines that were ready.
const (
	watchEvery  = 5 * time.Second // where no news says that anything has changed
	watchWithin = 5 * time.Second // for one look
)

// watches follow machines that a step has found ready: one that crashes while the run goes on has
// failed. That ends when the run stops, restarts, updates or destroys the machine itself, and when it
// begins to destroy what could take its place again: then nothing returns any more. Each machine is watched
// for Options.Watch before that, and before the run ends.
type watches struct {
	r     *runner
	group sync.WaitGroup

	mu    sync.Mutex
	ready map[int]watch // by the step that found the machine ready
	kept  []bool        // by step: it leads to what is destroyed
	told  bool          // an event said that machines are watched
	over  bool
}

// watch is the watch of one machine.
type watch struct {
	since  time.Time // it was found ready
	cancel context.CancelFunc
}

func newWatches(r *runner, p *deploy.Plan) *watches {
	return &watches{r: r, ready: map[int]watch{}, kept: make([]bool, len(p.Steps))}
}

// before is called before step i begins. If step i destroys something, before waits until the machines of all
// earlier steps that it depends on have been watched for long enough.
func (w *watches) before(ctx context.Context, i int) error {
	if !destroys(&w.r.plan.Steps[i]) {
		return nil
	}
	before := map[int]bool{}
	for todo := w.r.plan.Steps[i].After; len(todo) > 0; todo = todo[1:] {
		if step := todo[0]; !before[step] {
			before[step] = true
			todo = append(slices.Clone(todo), w.r.plan.Steps[step].After...)
		}
	}
	return w.watched(ctx, func(step int) bool { return before[step] })
}

// all waits until all machines have been watched for long enough.
func (w *watches) all(ctx context.Context) error {
	return w.watched(ctx, func(int) bool { return true })
}

// watched waits until the machines that the chosen steps found ready have been watched for long enough. It returns an
// error when ctx ends, as it does when one of them crashes.
func (w *watches) watched(ctx context.Context, chosen func(step int) bool) error {
	var last time.Time
	w.mu.Lock()
	for step, one := range w.ready {
		if end := one.since.Add(w.r.opts.Watch); chosen(step) && end.After(last) {
			last = end
		}
	}
	left := time.Until(last)
	tell := left > 0 && !w.told
	w.told = w.told || tell
	w.mu.Unlock()
	if left <= 0 {
		return nil
	}
	if tell {
		w.r.emit(Event{Step: Whole, State: Waiting, Text: "machines are watched for another " + left.Round(100*time.Millisecond).String()})
	}
	return rest(ctx, left)
}

// begins ends the watches that a step which begins makes meaningless.
func (w *watches) begins(i int) {
	s := &w.r.plan.Steps[i]
	id := w.r.machineOf(i)
	w.mu.Lock()
	defer w.mu.Unlock()
	switch s.Do {
	case deploy.UpdateMachine, deploy.RestartMachine, deploy.StopMachine, deploy.StartMachine, deploy.DestroyMachine, deploy.DestroyVolume:
	default:
		return
	}
	for ready, one := range w.ready {
		if id != "" && w.r.machineOf(ready) == id {
			w.stop(ready, one)
		}
	}
	if s.Do == deploy.DestroyVolume || s.Do == deploy.DestroyMachine && s.Of == nil {
		w.keep(i)
	}
}

// keep ends the watches of all that a step is after: that stays. It is called with mu held.
func (w *watches) keep(i int) {
	for todo := []int{i}; len(todo) > 0; {
		i, todo = todo[len(todo)-1], todo[:len(todo)-1]
		if w.kept[i] {
			continue
		}
		w.kept[i] = true
		if one, there := w.ready[i]; there {
			w.stop(i, one)
		}
		todo = append(todo, w.r.plan.Steps[i].After...)
	}
}

// stop ends a watch. It is called with mu held.
func (w *watches) stop(i int, one watch) {
	one.cancel()
	delete(w.ready, i)
}

// follow begins to watch the machine that a step has found ready.
func (w *watches) follow(ctx context.Context, i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over || w.kept[i] {
		return
	}
	at := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	w.ready[i] = watch{at, cancel}
	w.group.Go(func() {
		if err := w.crashed(ctx, i, at); err != nil {
			w.fails(ctx, i, at, err)
		}
	})
}

// end ends all watches, and returns when none is at work any more.
func (w *watches) end() {
	w.mu.Lock()
	w.over = true
	for i, one := range w.ready {
		w.stop(i, one)
	}
	w.mu.Unlock()
	w.group.Wait()
}

// fails makes of a step that was done one that has failed, unless its watch has ended.
func (w *watches) fails(ctx context.Context, i int, since time.Time, err error) {
	r := w.r
	err = r.named(i, err)
	w.mu.Lock()
	if ctx.Err() != nil {
		w.mu.Unlock()
		return
	}
	took := r.get(i).took + time.Since(since)
	r.ended(i, err, took)
	w.mu.Unlock()
	r.emit(Event{Step: i, State: Failed, Text: text(err), Took: took, Evidence: r.evidence(i)})
}

// crashed looks at a machine whenever there is news of its program, until that has crashed or ctx ends.
func (w *watches) crashed(ctx context.Context, i int, since time.Time) error {
	r := w.r
	id, was := r.machineOf(i), r.get(i).ready
	for {
		changed, _ := r.news.next(id) // before it is looked at
		row, there, known := r.news.row(id)
		if !known || !there || row.State != bourse.StateStarted || row.Instance != was.instance || row.Starts != was.starts {
			var m machinesapi.Machine
			unread := r.request(ctx, id.Tag(), watchWithin, func(ctx context.Context) (err error) {
				m, err = r.api.Machine(ctx, id)
				return err
			})
			if how := crash(&m, &was); unread == nil && how != "" { // that its worker does not answer is not its fault
				return bourse.Errorf(bourse.CodeFailedPrecondition, "it crashed %s after it was ready%s", time.Since(since).Round(time.Second/10), how)
			}
		}
		timer := time.NewTimer(watchEvery)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
		select {
		case <-ctx.Done():
			return nil
		default:
		}
	}
}

// crash says how a machine's program has ended by itself, and badly, since was; "" when it has not. One
// that was stopped because no one used it, and started again, goes on: was is what it is then.
func crash(m *machinesapi.Machine, was *made) string {
	if m.InstanceID != was.instance {
		return ""
	}
	exit := m.Exit
	for _, e := range m.Events { // newest first
		if exit == nil && m.Starts > was.starts && e.Request != nil {
			exit = e.Request.ExitEvent
		}
	}
	was.starts = max(was.starts, m.Starts)
	switch {
	case m.State == bourse.StateFailed && exit == nil:
		return fmt.Sprintf(": it is %s", m.State)
	case exit == nil || exit.RequestedStop || exit.ExitCode == 0 && exit.Error == "" && !exit.OOMKilled:
		return ""
	}
	return exitText(exit)
}
