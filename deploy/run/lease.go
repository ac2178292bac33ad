package run

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/deploy"
	"github.com/bourse-dev/bourse/machinesapi"
)

// leases are those of the machines that the plan changes. Each is taken before the first
// step, but for machines whose workers do not answer: their steps wait for it.
type leases struct {
	r     *runner
	tries sync.WaitGroup // those that go on when the steps have begun

	mu     sync.Mutex
	held   map[bourse.MachineID]*lease
	waited bool  // for one that another held
	taken  error // another has had a machine that was held: nothing is undone any more
}

// lease is one, from when it is wanted.
type lease struct {
	machine bourse.MachineID
	first   chan struct{}   // closed after the first try
	settled chan struct{}   // closed when it is held, or never will be
	again   bool            // it was lost before, and is taken again to return what was done
	valid   context.Context //nolint:containedctx // its end is that of the lease
	lose    context.CancelCauseFunc

	// Guarded by leases.mu.
	nonce string
	until time.Time // by our clock, with its monotonic part: not after its end at its worker
	err   error     // it is not held
	gone  bool      // the machine is
}

// ErrLeased is in the chain of the error of a run that waited for a lease in vain: nothing was changed.
var ErrLeased = errors.New("is leased")

func newLeases(r *runner) *leases { return &leases{r: r, held: map[bourse.MachineID]*lease{}} }

// machines returns the sorted IDs of the machines whose leases a plan needs: the machines that it changes. If the plan
// can be made again, it needs the leases of all machines that it was made from, so that these do not change.
func (r *runner) machines(p *deploy.Plan) []bourse.MachineID {
	out := map[bourse.MachineID]bool{}
	for i := range p.Steps {
		if s := &p.Steps[i]; s.Machine != "" && touches(s) {
			out[s.Machine] = true
		}
	}
	if r.opts.Replan != nil {
		for id, seen := range p.Seen {
			out[id] = out[id] || !seen.Lost
		}
	}
	maps.DeleteFunc(out, func(_ bourse.MachineID, needed bool) bool { return !needed })
	return slices.Sorted(maps.Keys(out))
}

// takeAll takes the leases of all machines that the plan is about. It returns once
// each is held or its worker does not answer; an error means that one is not to be had.
func (l *leases) takeAll(ctx context.Context) error {
	ids := l.r.machines(l.r.plan)
	if len(ids) == 0 {
		return nil
	}
	// Two runs that want the same machines both begin with the same one: neither waits
	// for the other with what the other wants in hand.
	step := func(id bourse.MachineID) int {
		if l.r.opts.Replan != nil {
			return Whole // steps will be others
		}
		return slices.IndexFunc(l.r.plan.Steps, func(s deploy.Step) bool { return s.Machine == id && touches(&s) })
	}
	if err := l.begin(ctx, ids[0], step(ids[0]), false).tried(ctx, l); err != nil {
		return err
	}
	wanted := make([]*lease, 0, len(ids))
	for _, id := range ids[1:] {
		wanted = append(wanted, l.begin(ctx, id, step(id), false))
	}
	for _, one := range wanted {
		if err := one.tried(ctx, l); err != nil {
			return err
		}
	}
	l.allFresh(ctx)
	l.mu.Lock()
	waited, taken := l.waited, l.taken
	l.mu.Unlock()
	if waited && taken == nil && l.r.opts.Replan == nil {
		return l.r.asSeen(ctx)
	}
	return taken
}

// begin begins to take a lease for a step, unless that was begun; with again also when
// it was lost.
func (l *leases) begin(ctx context.Context, id bourse.MachineID, step int, again bool) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.held[id]; one != nil && (!again || one.valid.Err() == nil) {
		return one
	}
	valid, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	one := &lease{machine: id, again: again, first: make(chan struct{}), settled: make(chan struct{}), valid: valid, lose: lose}
	l.held[id] = one
	l.tries.Go(func() {
		err := l.take(ctx, one, step)
		l.mu.Lock()
		one.err = err
		l.mu.Unlock()
		if err != nil {
			lose(err)
		}
		one.seen()
		close(one.settled)
	})
	return one
}

// seen says that the first try has ended. Only the goroutine of the lease calls it.
func (one *lease) seen() {
	select {
	case <-one.first:
	default:
		close(one.first)
	}
}

// tried waits for the first try, and returns why the lease will not be held, if that
// is known.
func (one *lease) tried(ctx context.Context, l *leases) error {
	select {
	case <-one.first:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return one.err
}

// take asks for a lease until it is held. What others hold is waited for, and so is a
// worker that does not answer; the steps of other machines go on in the meantime only in the
// latter case.
func (l *leases) take(ctx context.Context, one *lease, step int) error {
	r := l.r
	began := time.Now()
	told := false
	for {
		var held machinesapi.Lease
		var asked time.Time
		err := r.again(ctx, try{step: step, machine: one.machine, limit: quick}, func(ctx context.Context, _ bool) error {
			asked = time.Now()
			var err error
			held, err = r.api.Acquire(ctx, one.machine, machinesapi.LeaseRequest{TTL: int64(r.opts.LeaseTTL / time.Second), Description: r.opts.Owner}, "")
			if code := bourse.CodeOf(err); code == bourse.CodeUnavailable || code == bourse.CodeTimeout {
				one.seen()
			}
			return err
		})
		switch bourse.CodeOf(err) {
		case "":
			l.mu.Lock()
			one.nonce, one.until = held.Nonce, asked.Add(r.opts.LeaseTTL)
			l.mu.Unlock()
			if told {
				r.emit(Event{Step: step, State: Running, Machine: one.machine})
			}
			if one.again {
				return l.ours(one.machine, held.Version)
			}
			if r.opts.Replan != nil {
				return nil
			}
			return r.unchanged(one.machine, held.Version)
		case bourse.CodeNotFound:
			return l.lacking(one)
		case bourse.CodeFailedPrecondition:
			if l.going(ctx, one.machine) {
				return l.lacking(one)
			}
			return err
		case bourse.CodeConflict:
		default:
			return err
		}
		who := l.holder(ctx, one.machine)
		if waited := time.Since(began); r.opts.LeaseWait < 0 || waited > r.opts.LeaseWait {
			return &bourse.Error{
				Code: bourse.CodeConflict, Message: "machine " + string(one.machine) + " " + ErrLeased.Error() + " " + who + ": wait for that to end", Err: ErrLeased,
			}
		}
		if !told {
			told = true
			l.mu.Lock()
			l.waited = true
			l.mu.Unlock()
			r.emit(Event{Step: step, State: Waiting, Machine: one.machine, Text: "machine " + string(one.machine) + " is leased " + who})
		}
		if err := l.turn(ctx, one.machine); err != nil {
			return err
		}
	}
}

// turn waits until a lease may have ended.
func (l *leases) turn(ctx context.Context, id bourse.MachineID) error {
	changed, most := l.r.news.next(id)
	timer := time.NewTimer(min(max(most, backFirst), lookWithNews))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// holder says by whom a machine is leased, and until when.
func (l *leases) holder(ctx context.Context, id bourse.MachineID) string {
	var m machinesapi.Machine
	err := l.r.request(ctx, id.Tag(), quick, func(ctx context.Context) (err error) {
		m, err = l.r.api.Machine(ctx, id)
		return err
	})
	if err != nil || m.Lease == nil {
		return "by another"
	}
	who := m.Lease.Owner
	if m.Lease.Description != "" {
		who += " (" + m.Lease.Description + ")"
	}
	return fmt.Sprintf("by %s, until %s UTC unless it is extended", who, time.Unix(m.Lease.ExpiresAt, 0).UTC().Format(time.TimeOnly))
}

// going reports whether a machine is being destroyed, or is gone.
func (l *leases) going(ctx context.Context, id bourse.MachineID) bool {
	var m machinesapi.Machine
	err := l.r.request(ctx, id.Tag(), quick, func(ctx context.Context) (err error) {
		m, err = l.r.api.Machine(ctx, id)
		return err
	})
	return bourse.CodeOf(err) == bourse.CodeNotFound || m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed
}

// lacking handles a lease whose machine does not exist. That is an error unless the plan will be made again, or
// destroys the machine: an earlier plan may have begun to.
func (l *leases) lacking(one *lease) error {
	if l.r.opts.Replan == nil && !l.r.goes(one.machine) {
		return errGone(one.machine)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	one.gone = true
	return nil
}

// goes reports whether the plan destroys a machine.
func (r *runner) goes(id bourse.MachineID) bool {
	return slices.ContainsFunc(r.plan.Steps, func(s deploy.Step) bool { return s.Machine == id && s.Do == deploy.DestroyMachine })
}

func errGone(id bourse.MachineID) error {
	return bourse.Errorf(bourse.CodeConflict, "machine %s does not exist any more", id)
}

// left reports whether a machine was gone when its lease was asked for.
func (l *leases) left(id bourse.MachineID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.held[id]
	return one != nil && one.gone && one.nonce == ""
}

// enter waits until the lease of a machine is held, and returns a context that ends with it, and its nonce.
// One that was lost is taken again if again is set. leave is to be called when what it was for has ended.
func (l *leases) enter(ctx context.Context, step int, id bourse.MachineID, again bool) (in context.Context, nonce string, leave func(), err error) {
	one := l.begin(ctx, id, step, again)
	select {
	case <-one.settled:
	case <-ctx.Done():
		return nil, "", nil, context.Cause(ctx)
	}
	if one.valid.Err() != nil {
		return nil, "", nil, context.Cause(one.valid)
	}
	in, cancel := context.WithCancelCause(ctx)
	cut := context.AfterFunc(one.valid, func() { cancel(context.Cause(one.valid)) })
	l.mu.Lock()
	defer l.mu.Unlock()
	return in, one.nonce, func() { cut(); cancel(nil) }, nil
}

// keep extends what is held until ctx ends.
func (l *leases) keep(ctx context.Context) {
	tick := time.NewTicker(l.r.opts.LeaseTTL / 3)
	defer tick.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for _, one := range l.list() {
			if one.valid.Err() == nil {
				group.Go(func() { l.extend(ctx, one) })
			}
		}
	}
}

// list returns the leases that are or were held, of machines that are there.
func (l *leases) list() []*lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*lease
	for _, one := range l.held {
		if one.nonce != "" && !one.gone {
			out = append(out, one)
		}
	}
	return out
}

// extend extends one lease, or finds that it is lost. It counts by our own clock, from before the
// request, so that a clock that jumps, here or there, makes no lease seem to last.
func (l *leases) extend(ctx context.Context, one *lease) {
	ttl := l.r.opts.LeaseTTL
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, ttl/3)
	defer cancel()
	held, err := l.r.api.Acquire(limited, one.machine, machinesapi.LeaseRequest{TTL: int64(ttl / time.Second), Description: l.r.opts.Owner}, one.nonce)
	if err == nil && held.Nonce != one.nonce { // ours had ended, and so has the one that another took then
		last, done := l.r.ending()
		_ = l.r.api.Release(last, one.machine, held.Nonce) // or it ends by itself
		done()
		err = bourse.Errorf(bourse.CodeConflict, "another has held it meanwhile")
	}
	if ctx.Err() != nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch bourse.CodeOf(err) {
	case "":
		one.until = asked.Add(ttl)
	case bourse.CodeNotFound:
		one.gone = true
	case bourse.CodeConflict:
		one.lose(l.overtake(one.machine, err))
	default:
		// While its worker does not answer no one else can take it either, and who comes after
		// us is found by our nonce, which is refused then. So it is not given up before the worker is.
		if time.Since(one.until) > l.r.opts.Silence {
			one.lose(because("the lease of machine "+string(one.machine)+" has expired, it could not be extended", err))
		}
	}
}

// forget says that a machine was destroyed, and its lease with it.
func (l *leases) forget(id bourse.MachineID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.held[id]; one != nil {
		one.gone = true
	}
}

// release gives back what is held, once no more is being taken. What cannot be released ends
// by itself.
func (l *leases) release(ctx context.Context) {
	l.tries.Wait()
	var group sync.WaitGroup
	for _, one := range l.list() {
		group.Go(func() {
			_ = l.r.again(ctx, try{step: Whole, machine: one.machine, limit: quick}, func(ctx context.Context, _ bool) error {
				return l.r.api.Release(ctx, one.machine, one.nonce)
			})
		})
	}
	group.Wait()
}

// end ends the contexts of all leases.
func (l *leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.held {
		one.lose(errStopped)
	}
}

// touches reports whether a step changes a machine that is there, so that its lease is needed.
func touches(s *deploy.Step) bool {
	switch s.Do {
	case deploy.UpdateMachine, deploy.RestartMachine, deploy.UncordonMachine, deploy.CordonMachine, deploy.StopMachine, deploy.StartMachine,
		deploy.SetMetadata, deploy.DestroyMachine:
		return true
	case deploy.RunCommand, deploy.MakeVolume, deploy.MakeMachine, deploy.AwaitReady, deploy.AwaitProxies, deploy.DestroyVolume:
	}
	return false
}
