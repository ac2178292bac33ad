package run

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/release"
)

// concludeWithin bounds what is done at the end of a run: what is not released ends by itself.
const concludeWithin = 5 * time.Second

// ending returns the context of what is done at the end of a run.
func (r *runner) ending() (context.Context, context.CancelFunc) {
	within := concludeWithin
	if r.hard.Err() != nil {
		within = time.Second
	}
	return context.WithTimeout(context.WithoutCancel(r.hard), within)
}

// record says how the release went.
func (r *runner) record(result *Result, err error) {
	if r.opts.Resumed && !r.began { // another run may be at work on it
		return
	}
	ctx, cancel := r.ending()
	defer cancel()
	note := Note{By: r.opts.Owner, Why: why(err), Left: result.Left}
	if err := r.setRelease(ctx, result.Status, note); err != nil {
		r.emit(Event{Step: Whole, State: Waiting, Text: "the release could not be recorded as " + string(result.Status) + ": " + bourse.MessageOf(err)})
	}
}

// release gives back what the run holds.
func (r *runner) release() {
	ctx, cancel := r.ending()
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { r.rooms.release(ctx) })
	both.Go(func() { r.leases.release(ctx) })
	both.Wait()
	r.leases.end()
}

// setRelease says how the release goes, if there is one.
func (r *runner) setRelease(ctx context.Context, status release.Status, note Note) error {
	if r.opts.Release == "" {
		return nil
	}
	err := r.again(ctx, try{step: Whole, limit: quick}, func(ctx context.Context, _ bool) error {
		return r.api.SetRelease(ctx, r.opts.Release, status, note)
	})
	if err != nil {
		return because("release "+string(r.opts.Release), err)
	}
	return nil
}

// result says how the run went.
func (r *runner) result(err error) Result {
	overtaken := r.leases.overtaken() != nil
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Result{Plan: *r.plan, Status: release.Complete, Steps: make([]Outcome, len(r.at)), Failed: r.failed, Silent: slices.Sorted(maps.Keys(r.silent))}
	for i := range r.at {
		p := &r.at[i]
		out.Steps[i] = Outcome{Step: i, State: p.state, Machine: p.machine, Volume: p.volume, Took: p.took, Text: p.text}
		if out.Steps[i].Machine == "" {
			out.Steps[i].Machine = r.plan.Steps[i].Machine
		}
		if left, there := r.leftover(i); there && (err != nil || r.plan.Steps[i].Do == deploy.RunCommand) {
			if overtaken {
				left.GoOn = fmt.Sprintf("bourse status --app %s shows what the other has made of it", r.plan.App)
			}
			out.Left = append(out.Left, left)
		}
	}
	if err != nil {
		if out.Status = release.Failed; len(out.Left) > 0 || r.opts.Resumed {
			out.Status = release.Interrupted
		}
	}
	return out
}

// leftover returns what a step has left that is not as it was. It is called with mu held.
func (r *runner) leftover(i int) (Leftover, bool) {
	s, p := &r.plan.Steps[i], &r.at[i]
	id := s.Machine
	switch {
	case p.machine != "":
		id = p.machine
	case s.Of != nil:
		id = r.at[*s.Of].machine
	}
	left := Leftover{
		Step: i, Machine: id, Volume: p.volume,
		GoOn: fmt.Sprintf("bourse deploy --resume --app %s goes on, bourse rollback --app %s returns", r.plan.App, r.plan.App),
	}
	switch s.Do {
	case deploy.RunCommand:
		left.What = "the command's machine was not destroyed: " + why(p.undo)
		left.GoOn = fmt.Sprintf("bourse machine destroy --app %s --force %s", r.plan.App, id)
		return left, p.undo != nil
	case deploy.AwaitReady, deploy.RestartMachine, deploy.AwaitProxies:
		return left, false
	case deploy.MakeVolume, deploy.MakeMachine, deploy.UpdateMachine, deploy.UncordonMachine, deploy.CordonMachine, deploy.StopMachine,
		deploy.StartMachine, deploy.SetMetadata, deploy.DestroyMachine, deploy.DestroyVolume:
	}
	switch {
	case s.Do == deploy.DestroyMachine && s.Of != nil: // it was this run's own
		return left, false
	case p.state == Left:
		left.What = string(s.Do) + " was not undone: " + why(p.undo)
	case p.state == Done && !p.was:
		left.What = string(s.Do) + " was done, and is not undone"
	case p.state == Failed && p.sent && (p.unknown || s.Do == deploy.UpdateMachine || p.machine != "" || p.volume != ""):
		left.What = string(s.Do) + " was begun, and is not undone: " + p.text
	default:
		return left, false
	}
	return left, true
}

// last is the last event.
func (r *runner) last(result *Result, err error) Event {
	e := Event{Step: Whole, Took: result.Took, Text: why(err)}
	switch {
	case err == nil:
		e.State = Done
	case len(result.Left) > 0:
		e.State = Left
	case slices.ContainsFunc(result.Steps, func(o Outcome) bool { return o.State == Undone }):
		e.State = Undone
	default:
		e.State = Failed
	}
	return e
}
