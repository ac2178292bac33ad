package run

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/release"
)

// Run carries out a plan and returns when everything it started has ended. It returns an error
// unless all steps were done: that of the step that failed first, or that ctx has ended (canceled).
// With [Options].Replan it makes the plan again once it holds the leases of all machines.
// Codes: invalid (the plan is refused), conflict (another holds a lease, or a machine was changed
// since the plan was made), insufficient_capacity, failed_precondition (a machine failed), timeout,
// unavailable, canceled.
func Run(ctx context.Context, api API, plan deploy.Plan, opts Options) (Result, error) {
	if err := canRun(&plan); err != nil {
		return Result{Plan: plan}, err
	}
	return newRunner(api, &plan, opts.withDefaults()).run(ctx)
}

// canRun returns CodeInvalid for a plan that is refused.
func canRun(p *deploy.Plan) error {
	if len(p.Refused) == 0 {
		return nil
	}
	return bourse.Errorf(bourse.CodeInvalid, "the plan is refused: %s", strings.Join(p.Refused, "; "))
}

// errStopped ends what waits when nothing more is to begin.
var errStopped = errors.New("the run was stopped")

// errAbandoned ends everything.
var errAbandoned = &bourse.Error{Code: bourse.CodeCanceled, Message: "the run was ended at once"}

// runner is one run.
type runner struct {
	api    API
	plan   *deploy.Plan
	opts   Options
	slots  *slots
	news   *news
	leases *leases
	rooms  *rooms
	watch  *watches

	// Set before anything is started. Until the first step begins, [runner.replan] may set plan, at and watch again.
	hard    context.Context         //nolint:containedctx // ends when the run is abandoned
	work    context.Context         //nolint:containedctx // ends when no step is to begin any more
	stop    context.CancelCauseFunc // ends work
	telling sync.Mutex              // events come one at a time
	began   bool                    // the leases are held, and the release is recorded as running; only run uses it

	mu       sync.Mutex
	at       []progress // by step
	versions map[bourse.MachineID]made
	lines    map[int][]machinesapi.LogLine // the last of commands, by step
	failure  error                         // of the step that failed first
	failed   []Evidence
	silent   map[string]bool // proxies
}

// progress is how far a step is.
type progress struct {
	state    State
	began    time.Time
	took     time.Duration
	text     string
	machine  bourse.MachineID // that it made, or is about
	volume   bourse.VolumeID  // that it made
	order    bourse.OrderID   // of what it makes
	sent     bool             // the order was sent
	unknown  bool             // a request of it got no answer, and none after that says what became of it
	was      bool             // it found the machine as it was to make it: nothing has to be undone
	instance bourse.InstanceID
	ready    made // the machine as it was found to be ready
	undo     error
}

// made is what a run made of a machine.
type made struct {
	instance bourse.InstanceID
	starts   int
}

func newRunner(api API, plan *deploy.Plan, opts Options) *runner {
	r := &runner{
		api: api, plan: plan, opts: opts, slots: newSlots(opts.Parallel), news: newNews(), at: make([]progress, len(plan.Steps)),
		versions: map[bourse.MachineID]made{}, lines: map[int][]machinesapi.LogLine{}, silent: map[string]bool{},
	}
	r.leases = newLeases(r)
	r.rooms = newRooms(r)
	r.watch = newWatches(r, plan)
	return r
}

// run is all of [Run].
func (r *runner) run(ctx context.Context) (Result, error) {
	began := time.Now()
	hard, abandon := context.WithCancelCause(context.WithoutCancel(ctx))
	defer abandon(nil)
	r.hard = hard
	r.work, r.stop = context.WithCancelCause(hard)
	defer r.stop(nil)
	background, end := context.WithCancel(hard)
	var group sync.WaitGroup
	group.Go(func() {
		select {
		case <-r.opts.Abandon:
			abandon(errAbandoned)
		case <-background.Done():
		}
	})
	group.Go(func() { r.news.run(background, r.api) })
	group.Go(func() { r.leases.keep(background) })
	group.Go(func() { r.rooms.keep(background) })

	r.emit(Event{Step: Whole, State: Running})
	err := r.forward(ctx)
	if err != nil && !r.opts.KeepOnFailure && hard.Err() == nil {
		r.undo()
	}
	if taken := r.leases.overtaken(); err != nil && taken != nil && hard.Err() == nil { // what failed first may only be what the other did
		err = taken
	}
	result := r.result(err)
	r.record(&result, err)
	end() // what extends leases would take those again that are released
	group.Wait()
	r.release()
	result.Took = time.Since(began)
	r.emit(r.last(&result, err))
	return result, err
}

// forward carries the steps out, and returns why not all were done.
func (r *runner) forward(ctx context.Context) error {
	work := r.work
	defer context.AfterFunc(ctx, func() { r.stop(errStopped) })()
	var watched error
	defer r.stop(errStopped) // leases of silent workers are not waited for any more
	err := r.leases.takeAll(work)
	if err == nil {
		err = r.replan(work)
	}
	if err == nil {
		err = r.setRelease(work, release.Running, Note{By: r.opts.Owner})
	}
	if err == nil {
		r.began = true
		err = r.rooms.hold(work)
	}
	if err == nil {
		after := make([][]int, len(r.plan.Steps))
		for i := range after {
			after[i] = r.plan.Steps[i].After
		}
		walk(after, func(i int) bool {
			if r.watch.before(work, i) != nil || work.Err() != nil {
				return false
			}
			r.watch.begins(i)
			if !r.one(work, i) {
				r.stop(errStopped)
				return false
			}
			if r.plan.Steps[i].Do == deploy.AwaitReady {
				r.watch.follow(work, i)
			}
			return true
		})
		watched = r.watch.all(work)
		r.watch.end()
	}
	r.mu.Lock()
	if r.failure != nil && (err == nil || errors.Is(err, errStopped)) {
		err = r.failure
	}
	r.mu.Unlock()
	switch {
	case r.hard.Err() != nil:
		return errAbandoned
	case err != nil && !errors.Is(err, errStopped):
		return err
	case ctx.Err() != nil && (watched != nil || !r.complete()):
		return &bourse.Error{Code: bourse.CodeCanceled, Message: "the run was interrupted", Err: context.Cause(ctx)}
	}
	return nil
}

// complete reports whether every step is done.
func (r *runner) complete() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range r.at {
		if r.at[i].state != Done {
			return false
		}
	}
	return true
}

// one carries out one step and reports whether that is done.
func (r *runner) one(work context.Context, i int) bool {
	began := time.Now()
	r.with(i, func(p *progress) { p.state, p.began = Running, began })
	r.emit(Event{Step: i, State: Running})
	err := r.step(work, i)
	took := time.Since(began)
	if err == nil {
		r.with(i, func(p *progress) { p.state, p.took = Done, took })
		r.emit(Event{Step: i, State: Done, Took: took})
		return true
	}
	var evidence *Evidence
	if !errors.Is(err, errStopped) {
		err = r.named(i, err)
		evidence = r.evidence(i)
	}
	r.ended(i, err, took)
	r.emit(Event{Step: i, State: Failed, Text: text(err), Took: took, Evidence: evidence})
	return false
}

// ended notes that a step has failed.
func (r *runner) ended(i int, err error, took time.Duration) {
	r.with(i, func(p *progress) { p.state, p.took, p.text = Failed, took, text(err) })
	if !errors.Is(err, errStopped) {
		r.fail(err)
	}
}

// fail ends the run with an error, if none has before: no step begins any more.
func (r *runner) fail(err error) {
	r.mu.Lock()
	if r.failure == nil {
		r.failure = err
	}
	r.mu.Unlock()
	r.stop(errStopped)
}

// text is what an event says of an error.
func text(err error) string {
	if errors.Is(err, errStopped) {
		return "cut short: no more is to be done"
	}
	return bourse.MessageOf(err)
}

// named puts the machine in front of a step's error.
func (r *runner) named(i int, err error) error {
	s := &r.plan.Steps[i]
	who := string(r.machineOf(i))
	switch {
	case s.Name != "" && who != "":
		who = s.Name + " (" + who + ")"
	case s.Name != "":
		who = s.Name
	case who == "":
		who = s.Group
	}
	if who == "" {
		return because(string(s.Do), err)
	}
	return because(string(s.Do)+" "+who, err)
}

func (r *runner) with(i int, change func(*progress)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change(&r.at[i])
}

func (r *runner) get(i int) progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.at[i]
}

// emit says something. The machine of a step is filled in.
func (r *runner) emit(e Event) {
	if e.Step != Whole && e.Machine == "" {
		if e.Machine = r.get(e.Step).machine; e.Machine == "" {
			e.Machine = r.machineOf(e.Step)
		}
	}
	r.telling.Lock()
	defer r.telling.Unlock()
	e.At = time.Now()
	r.opts.Events(e)
}

// machineOf returns the machine that a step is about, "" while it is not made.
func (r *runner) machineOf(i int) bourse.MachineID {
	s := &r.plan.Steps[i]
	switch {
	case s.Machine != "":
		return s.Machine
	case s.Of != nil:
		return r.get(*s.Of).machine
	}
	return r.get(i).machine
}
