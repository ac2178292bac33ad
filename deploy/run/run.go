// Package run executes plans. It deals only with steps and their dependencies; it does not know about strategies or
// terminals.
//
// [Run] holds the leases of all machines that its plan changes, and does not begin a change to a machine whose lease it
// has lost. It waits until machines have started and their checks pass, and until proxies have received the changes.
// Unanswered requests are repeated for a limited time, but take effect only once. Refused requests are not repeated.
//
// When a step fails or the context is done, no further step begins, and the steps in progress finish. Before anything
// is undone, the last lines of the failed machine's output are read. All changes are then undone in reverse order:
// each step is undone after the steps that depend on it.
//
// Run starts one goroutine for each step in progress and for each watched machine, and a few for leases, reservations
// and view updates. All of them have ended when Run returns.
package run

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// Run executes a plan. It returns an error unless all steps were completed: the error of the first failed step, or
// canceled if ctx is done. If [Options].Replan is set, Run replaces the plan once it holds the leases of all machines.
//
// Errors: invalid (the plan is refused), conflict (another client holds a lease, or a
// machine was changed after the plan was made), insufficient_capacity,
// failed_precondition (a machine failed), timeout, unavailable, canceled.
func Run(ctx context.Context, api API, plan deploy.Plan, opts Options) (Result, error) {
	if err := canRun(&plan); err != nil {
		return Result{Plan: plan}, err
	}
	return newExecutor(api, &plan, opts.withDefaults()).run(ctx)
}

// canRun returns CodeInvalid if the plan is refused, or if it creates a volume for a
// machine whose config has no mount.
func canRun(p *deploy.Plan) error {
	if len(p.Refused) > 0 {
		return bourse.Errorf(bourse.CodeInvalid, "the plan is refused: %s", strings.Join(p.Refused, "; "))
	}
	for i := range p.Steps {
		if do, ok := p.Steps[i].Do.(deploy.MakeMachine); ok && do.Volume != nil && len(do.Config.Mounts) == 0 {
			return bourse.Errorf(bourse.CodeInvalid, "step %d of the plan: the machine's config has no mount for its volume", i)
		}
	}
	return nil
}

// errStopped is the cancellation cause of operations that are still waiting when the run stops.
var errStopped = errors.New("the run was stopped")

// errAbandoned is the cancellation cause of all operations when the run is abandoned.
var errAbandoned = &bourse.Error{Code: bourse.CodeCanceled, Message: "the run was abandoned"}

// executor executes a plan.
type executor struct {
	api     API
	opts    Options
	plan    *deploy.Plan // [executor.use] may replace it before the first step begins
	journal *journal

	requests     *requests
	news         *viewUpdates
	leases       *leases
	reservations *reservations

	abandonCtx context.Context         //nolint:containedctx // ends when the run is abandoned
	workCtx    context.Context         //nolint:containedctx // ends when no further step may begin
	stop       context.CancelCauseFunc // cancels workCtx
	eventMu    sync.Mutex              // held while an event is reported, so that events are reported one at a time
	began      bool                    // the leases are held and the release has been recorded as running
}

func newExecutor(api API, plan *deploy.Plan, opts Options) *executor {
	x := &executor{api: api, plan: plan, opts: opts, journal: newJournal(plan), news: newViewUpdates()}
	x.requests = &requests{slots: newSlots(maxRequests), retryFor: opts.RetryFor, abandon: opts.Abandon, emit: x.emit}
	x.leases = &leases{
		api: api, requests: x.requests, news: x.news, opts: &x.opts, emit: x.emit,
		check: x.checkVersion, missing: x.checkMissing, fail: x.fail, held: map[bourse.MachineID]*lease{},
	}
	x.reservations = &reservations{api: api, requests: x.requests, emit: x.emit, byStep: map[int]reserved{}}
	return x
}

// run implements [Run].
func (x *executor) run(ctx context.Context) (Result, error) {
	began := time.Now()
	hard, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	x.abandonCtx = hard
	x.workCtx, x.stop = context.WithCancelCause(hard)
	defer x.stop(nil)
	background, end := context.WithCancel(hard)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-x.opts.Abandon:
			abandon(errAbandoned)
		case <-background.Done():
		}
	})
	group.Go(func() { x.news.run(background, x.api) })
	group.Go(func() { x.leases.keep(background) })
	group.Go(func() { x.reservations.keep(background) })

	x.emit(Event{Step: WholeRun, State: Running})
	err := x.forward(ctx)
	if err != nil && !x.opts.KeepOnFailure && hard.Err() == nil {
		undo{x}.all()
	}
	overtaken := x.leases.overtaken()
	if err != nil && overtaken != nil && hard.Err() == nil {
		// The first failure may only be a consequence of the lost lease, so report the lost lease instead.
		err = overtaken
	}
	result := x.journal.result(err, overtaken != nil, x.opts.Resumed)
	x.record(&result, err)
	end() // stop extending leases, which could otherwise be reacquired after they are released
	group.Wait()
	x.release()
	result.Took = time.Since(began)
	x.emit(result.last(err))
	return result, err
}

// forward executes the steps. It returns an error unless all of them were completed.
func (x *executor) forward(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { x.stop(errStopped) })()
	defer x.stop(errStopped) // stop waiting for leases from unresponsive workers
	err := x.prepare(x.workCtx)
	var watched error
	if err == nil {
		watched = x.steps(x.workCtx)
	}
	if failure := x.journal.failure(); failure != nil && (err == nil || errors.Is(err, errStopped)) {
		err = failure
	}
	switch {
	case x.abandonCtx.Err() != nil:
		return errAbandoned
	case err != nil && !errors.Is(err, errStopped):
		return err
	case ctx.Err() != nil && (watched != nil || !x.journal.complete()):
		return &bourse.Error{Code: bourse.CodeCanceled, Message: "the run was interrupted", Err: context.Cause(ctx)}
	}
	return nil
}

// prepare acquires the leases, replans if necessary, and reserves capacity. It must succeed before the first step
// begins.
func (x *executor) prepare(ctx context.Context) error {
	if err := x.takeLeases(ctx); err != nil {
		return err
	}
	if err := x.replan(ctx); err != nil {
		return err
	}
	if err := x.setRelease(ctx, release.Running, Note{By: x.opts.Owner}); err != nil {
		return err
	}
	x.began = true
	return x.reservations.hold(ctx, x.plan)
}

// steps executes all steps. It returns an error if ctx is done before the machines have been watched for long enough.
// The error of a failed step is recorded in the journal.
func (x *executor) steps(ctx context.Context) error {
	after := newGraph(x.plan)
	w := newWatches(x, after)
	after.walk(func(i int) bool {
		if w.before(ctx, i) != nil || ctx.Err() != nil {
			return false
		}
		w.cancelObsolete(i)
		if !x.runStep(ctx, i) {
			x.stop(errStopped)
			return false
		}
		if deploy.Is[deploy.AwaitReady](x.plan.Steps[i].Do) {
			w.follow(ctx, i)
		}
		return true
	})
	defer w.end()
	return w.all(ctx)
}

// runStep executes a step and reports whether it succeeded.
func (x *executor) runStep(ctx context.Context, i int) bool {
	began := time.Now()
	x.journal.change(i, func(p *progress) { p.state = Running })
	x.emit(Event{Step: i, State: Running})
	err := operation{x, i}.do(ctx)
	took := time.Since(began)
	if err != nil {
		e := x.failed(i, err, took)
		if !errors.Is(err, errStopped) {
			e.Evidence = x.evidence(i)
		}
		x.emit(e)
		return false
	}
	x.journal.change(i, func(p *progress) { p.state, p.took = Done, took })
	x.emit(Event{Step: i, State: Done, Took: took})
	return true
}

// failed records that a step has failed, and returns the event that reports the failure. Unless err is errStopped,
// the run fails, too.
func (x *executor) failed(i int, err error, took time.Duration) Event {
	text := "stopped, because the run has ended"
	stopped := errors.Is(err, errStopped)
	if !stopped {
		err = x.named(i, err)
		text = bourse.MessageOf(err)
	}
	x.journal.change(i, func(p *progress) { p.state, p.took, p.text = Failed, took, text })
	if !stopped {
		x.fail(err)
	}
	return Event{Step: i, State: Failed, Text: text, Took: took}
}

// fail makes the run fail with err, unless it has already failed. After that, no further step begins.
func (x *executor) fail(err error) {
	x.journal.fail(err)
	x.stop(errStopped)
}

// named prefixes a step's error with the step's action and machine.
func (x *executor) named(i int, err error) error {
	s := &x.plan.Steps[i]
	who := string(x.journal.machine(i))
	switch {
	case s.Name != "" && who != "":
		who = s.Name + " (" + who + ")"
	case s.Name != "":
		who = s.Name
	case who == "":
		who = s.Group
	}
	return prefixError(strings.TrimSuffix(fmt.Sprintf("%s %s", s.Do, who), " "), err)
}

// emit reports an event. It fills in the machine of the event's step.
func (x *executor) emit(e Event) {
	if e.Step != WholeRun && e.Machine == "" {
		e.Machine = x.journal.machine(e.Step)
	}
	x.eventMu.Lock()
	defer x.eventMu.Unlock()
	e.At = time.Now()
	x.opts.Events(e)
}

// endTimeout limits the time for a run's last requests. It can be short, because leases and reservations that are not
// released expire.
const endTimeout = 5 * time.Second

// lastRequestsContext returns the context for a run's last requests.
func (x *executor) lastRequestsContext() (context.Context, context.CancelFunc) {
	within := endTimeout
	if x.abandonCtx.Err() != nil {
		within = time.Second
	}
	return context.WithTimeout(context.WithoutCancel(x.abandonCtx), within)
}

// record stores the release's status, with a note about the run's outcome.
func (x *executor) record(result *Result, err error) {
	if x.opts.Resumed && !x.began { // another run may be working on the release
		return
	}
	ctx, cancel := x.lastRequestsContext()
	defer cancel()
	note := Note{By: x.opts.Owner, Why: errorText(err), Left: result.Left}
	if err := x.setRelease(ctx, result.Status, note); err != nil {
		x.emit(Event{Step: WholeRun, State: Waiting, Text: "the release could not be recorded as " + string(result.Status) + ": " + bourse.MessageOf(err)})
	}
}

// setRelease stores the release's status. It does nothing if the run has no release.
func (x *executor) setRelease(ctx context.Context, status release.Status, note Note) error {
	if x.opts.Release == "" {
		return nil
	}
	err := x.requests.repeat(ctx, repeatableRequest{step: WholeRun, limit: requestTimeout}, func(ctx context.Context, _ bool) error {
		return x.api.SetRelease(ctx, x.opts.Release, status, note)
	})
	if err != nil {
		return prefixError("release "+string(x.opts.Release), err)
	}
	return nil
}

// release releases all leases and reservations that the run holds.
func (x *executor) release() {
	ctx, cancel := x.lastRequestsContext()
	defer cancel()
	var both sync.WaitGroup
	both.Go(func() { x.reservations.release(ctx) })
	both.Go(func() { x.leases.release(ctx) })
	both.Wait()
	x.leases.end()
}
