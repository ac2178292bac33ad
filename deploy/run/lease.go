package run

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// leases holds the leases of the machines that a plan changes. The leases are acquired before the first step begins. If
// a machine's worker does not respond, only the steps that change this machine wait for the machine's lease, and the
// other steps can begin.
type leases struct {
	api      leaseAPI
	requests *requests
	news     *viewUpdates
	opts     *Options
	emit     func(Event)
	// check returns an error if a machine with a newly acquired lease has an unexpected version. again is set if this
	// run held the lease before and lost it.
	check func(id bourse.MachineID, v bourse.InstanceID, again bool) error
	// missing returns an error if the plan requires a machine that does not exist.
	missing func(id bourse.MachineID) error
	fail    func(error)    // fails the run
	tries   sync.WaitGroup // tracks the attempts to acquire leases, which continue in the background

	mu        sync.Mutex
	held      map[bourse.MachineID]*lease
	hasWaited bool  // this run waited for another client's lease
	takenErr  error // set if another client has taken a lease that this run held; nothing may then be undone
}

type leaseAPI interface {
	Leases
	Machine(ctx context.Context, id bourse.MachineID) (machinesapi.Machine, error)
}

// lease is a lease on one machine, or an attempt to acquire it.
type lease struct {
	machine bourse.MachineID
	first   chan struct{}   // closed after the first attempt to acquire the lease
	settled chan struct{}   // closed once the lease is held or can no longer be acquired
	retaken bool            // the lease was lost before and is reacquired to undo a step
	valid   context.Context //nolint:containedctx // ends when the lease is lost
	cancel  context.CancelCauseFunc

	// The following fields are guarded by leases.mu.
	nonce string
	until time.Time // expiry by this process's monotonic clock, no later than the expiry on the worker
	err   error     // reason why the lease is not held
	gone  bool      // the machine no longer exists
}

// ErrLeased is in the error chain if a run could not acquire a lease that another client holds. Usually, such a run has
// not changed anything. However, if the machine's worker did not respond at first, steps for other machines may have
// begun.
var ErrLeased = errors.New("is leased")

// ErrOvertaken is in the error chain if a run lost a lease to another client, because it was suspended or disconnected
// for too long. The run does not undo anything, because the other client's plan is based on the changes that the run
// has made.
var ErrOvertaken = errors.New("another client has taken over the machines")

// take acquires the leases of the given machines. It does not wait for workers that do not respond: it returns once all
// other leases are held, and the missing ones are acquired in the background. It returns an error if a lease cannot be
// acquired. The argument step is a function that returns the step for which a machine's lease is needed. waited reports
// whether this run had to wait for another client's lease.
func (l *leases) take(ctx context.Context, ids []bourse.MachineID, step func(bourse.MachineID) int) (waited bool, err error) {
	if len(ids) == 0 {
		return false, nil
	}
	// Runs that need the same machines begin with the same machine. This prevents a deadlock in which each run holds a
	// lease that the other needs.
	if err := l.begin(ctx, ids[0], step(ids[0]), false).awaitAttempt(ctx, l); err != nil {
		return false, err
	}
	wanted := make([]*lease, 0, len(ids))
	for _, id := range ids[1:] {
		wanted = append(wanted, l.begin(ctx, id, step(id), false))
	}
	for _, one := range wanted {
		if err := one.awaitAttempt(ctx, l); err != nil {
			return false, err
		}
	}
	l.refreshAll(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.hasWaited, l.takenErr
}

// covers reports whether the leases of all given machines are held or have been requested.
func (l *leases) covers(ids []bourse.MachineID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, id := range ids {
		if l.held[id] == nil {
			return false
		}
	}
	return true
}

// begin starts to acquire a lease, unless an earlier call has already done so. If again is set, it reacquires a lost
// lease.
func (l *leases) begin(ctx context.Context, id bourse.MachineID, step int, again bool) *lease {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.held[id]; one != nil && (!again || one.valid.Err() == nil) {
		return one
	}
	valid, lose := context.WithCancelCause(context.WithoutCancel(ctx))
	one := &lease{machine: id, retaken: again, first: make(chan struct{}), settled: make(chan struct{}), valid: valid, cancel: lose}
	l.held[id] = one
	l.tries.Go(func() {
		err := l.acquire(ctx, one, step)
		l.mu.Lock()
		one.err = err
		l.mu.Unlock()
		if err != nil {
			lose(err)
		}
		one.endAttempt()
		close(one.settled)
	})
	return one
}

// endAttempt records that the first attempt to acquire the lease has ended. Only the goroutine that acquires the
// lease may call it.
func (one *lease) endAttempt() {
	select {
	case <-one.first:
	default:
		close(one.first)
	}
}

// awaitAttempt waits until the first attempt to acquire the lease has ended. It returns an error if this attempt has
// shown that the lease cannot be acquired, or if ctx is done first.
func (one *lease) awaitAttempt(ctx context.Context, l *leases) error {
	select {
	case <-one.first:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return one.err
}

func (l *leases) request(ctx context.Context, id bourse.MachineID, nonce string) (machinesapi.Lease, error) {
	return l.api.Acquire(ctx, id, machinesapi.LeaseRequest{TTL: int64(l.opts.LeaseTTL / time.Second), Description: l.opts.Owner}, nonce)
}

// acquire requests a lease repeatedly until it is held. It waits while another client holds the lease or the worker
// does not respond. If the worker does not respond, acquire calls endAttempt, so that take returns and other
// machines' steps can begin.
func (l *leases) acquire(ctx context.Context, one *lease, step int) error {
	began := time.Now()
	told := false
	for {
		var held machinesapi.Lease
		var asked time.Time
		err := l.requests.repeat(ctx, repeatableRequest{step: step, machine: one.machine, limit: requestTimeout}, func(ctx context.Context, _ bool) (err error) {
			asked = time.Now()
			held, err = l.request(ctx, one.machine, "")
			if code := bourse.CodeOf(err); code == bourse.CodeUnavailable || code == bourse.CodeTimeout {
				one.endAttempt()
			}
			return err
		})
		switch bourse.CodeOf(err) {
		case "":
			l.mu.Lock()
			one.nonce, one.until = held.Nonce, asked.Add(l.opts.LeaseTTL)
			l.mu.Unlock()
			if told {
				l.emit(Event{Step: step, State: Running, Machine: one.machine})
			}
			return l.check(one.machine, held.Version, one.retaken)
		case bourse.CodeNotFound:
			return l.handleMissing(one)
		case bourse.CodeFailedPrecondition:
			if l.isDestroyed(ctx, one.machine) {
				return l.handleMissing(one)
			}
			return err
		case bourse.CodeConflict:
		default:
			return err
		}
		who := l.holder(ctx, one.machine)
		if waited := time.Since(began); l.opts.LeaseWait < 0 || waited > l.opts.LeaseWait {
			return &bourse.Error{
				Code: bourse.CodeConflict, Message: "machine " + string(one.machine) + " " + ErrLeased.Error() + " " + who + ": wait until the lease ends", Err: ErrLeased,
			}
		}
		if !told {
			told = true
			l.mu.Lock()
			l.hasWaited = true
			l.mu.Unlock()
			l.emit(Event{Step: step, State: Waiting, Machine: one.machine, Text: "machine " + string(one.machine) + " is leased " + who})
		}
		if err := l.awaitRelease(ctx, one.machine); err != nil {
			return err
		}
	}
}

// awaitRelease waits until another client's lease may have expired or been released.
func (l *leases) awaitRelease(ctx context.Context, id bourse.MachineID) error {
	changed, most := l.news.next(id)
	timer := time.NewTimer(min(max(most, minBackoff), slowInterval))
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// read reads a machine without retries.
func (l *leases) read(ctx context.Context, id bourse.MachineID) (m machinesapi.Machine, err error) {
	err = l.requests.request(ctx, id.Tag(), requestTimeout, func(ctx context.Context) (err error) {
		m, err = l.api.Machine(ctx, id)
		return err
	})
	return m, err
}

// holder returns a phrase that names the holder of a machine's lease, such as "by another client".
func (l *leases) holder(ctx context.Context, id bourse.MachineID) string {
	m, err := l.read(ctx, id)
	if err != nil || m.Lease == nil {
		return "by another client"
	}
	who := m.Lease.Owner
	if m.Lease.Description != "" {
		who += " (" + m.Lease.Description + ")"
	}
	return fmt.Sprintf("by %s, until %s UTC unless it is extended", who, time.Unix(m.Lease.ExpiresAt, 0).UTC().Format(time.TimeOnly))
}

// isDestroyed reports whether a machine is being destroyed or no longer exists.
func (l *leases) isDestroyed(ctx context.Context, id bourse.MachineID) bool {
	m, err := l.read(ctx, id)
	return bourse.CodeOf(err) == bourse.CodeNotFound || m.State == bourse.StateDestroying || m.State == bourse.StateDestroyed
}

// handleMissing handles a lease whose machine does not exist. It returns an error if the plan
// requires the machine.
func (l *leases) handleMissing(one *lease) error {
	if err := l.missing(one.machine); err != nil {
		return err
	}
	l.destroyed(one.machine)
	return nil
}

// destroyed records that a machine no longer exists, and therefore has no lease.
func (l *leases) destroyed(id bourse.MachineID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if one := l.held[id]; one != nil {
		one.gone = true
	}
}

// neverHeld reports whether a lease was never held because its machine no longer existed when the lease was
// requested.
func (l *leases) neverHeld(id bourse.MachineID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := l.held[id]
	return one != nil && one.gone && one.nonce == ""
}

// acquireFor waits until a machine's lease is held. It returns the lease's nonce and a context that is canceled when
// the lease is lost. If again is set, it reacquires a lost lease. The caller must call leave when it no longer needs
// the context.
func (l *leases) acquireFor(ctx context.Context, step int, id bourse.MachineID, again bool) (in context.Context, nonce string, leave func(), err error) {
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

// keep extends all leases until ctx is done.
func (l *leases) keep(ctx context.Context) {
	tick := time.NewTicker(l.opts.LeaseTTL / 3)
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

// list returns the leases that are or were held, except those of machines that no longer
// exist.
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

// extend extends a lease, or detects that it is lost. The new expiry is based on the time before the request, by this
// process's monotonic clock. Therefore, a lease never appears to last longer than it does, even if the system clock
// is changed.
func (l *leases) extend(ctx context.Context, one *lease) {
	ttl := l.opts.LeaseTTL
	asked := time.Now()
	limited, cancel := context.WithTimeout(ctx, ttl/3)
	defer cancel()
	held, err := l.request(limited, one.machine, one.nonce)
	if err == nil && held.Nonce != one.nonce {
		// The worker has granted a new lease. This means that this run's lease had expired, that another client then
		// held a lease, and that the other client's lease has also ended.
		last, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		_ = l.api.Release(last, one.machine, held.Nonce) // if this fails, the lease expires on its own
		done()
		err = bourse.Errorf(bourse.CodeConflict, "another client held the lease in the meantime")
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
		one.cancel(l.overtake(one.machine, err))
	default:
		// While the machine's worker does not respond, no other client can acquire the lease either. If another client
		// acquires it after the worker has returned, the worker refuses this run's nonce. Therefore, it is safe to keep
		// trying until l.opts.RetryFor has passed since the lease expired.
		if time.Since(one.until) > l.opts.RetryFor {
			one.cancel(prefixError("the lease of machine "+string(one.machine)+" has expired, because it could not be extended", err))
		}
	}
}

// overtake records that another client has taken a machine's lease, and fails the run. The
// caller must hold mu.
func (l *leases) overtake(id bourse.MachineID, cause error) error {
	err := &bourse.Error{
		Code: bourse.CodeConflict, Message: ErrOvertaken.Error() + ": the lease of machine " + string(id) + " was lost: " + bourse.MessageOf(cause), Err: ErrOvertaken,
	}
	if l.takenErr == nil {
		l.takenErr = err
		l.fail(err)
	}
	return err
}

// overtaken returns an error if another client has taken one of the leases. In that case, the run must not undo
// anything.
func (l *leases) overtaken() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.takenErr
}

// refresh extends a machine's lease if the lease has expired, for example while this process was suspended. Until
// refresh succeeds, the run must not change the machine, because another client may have changed it.
func (l *leases) refresh(ctx context.Context, id bourse.MachineID) error {
	expired := func() (*lease, bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		one := l.held[id]
		return one, one != nil && one.nonce != "" && !one.gone && one.valid.Err() == nil && time.Now().After(one.until)
	}
	one, late := expired()
	if !late {
		return nil
	}
	l.extend(ctx, one)
	if one.valid.Err() != nil {
		return context.Cause(one.valid)
	}
	if _, late := expired(); late {
		return bourse.Errorf(bourse.CodeUnavailable, "the lease of machine %s has expired, and could not be extended", id)
	}
	return nil
}

// refreshAll extends all expired leases, and thereby detects whether another client has taken one of them.
func (l *leases) refreshAll(ctx context.Context) {
	var group sync.WaitGroup
	for _, one := range l.list() {
		// Ignore errors: overtake records a lost lease, and the steps themselves detect an unresponsive worker.
		group.Go(func() { _ = l.refresh(ctx, one.machine) })
	}
	group.Wait()
}

// release waits until all attempts to acquire a lease have ended, and then releases all leases. A lease that cannot
// be released expires.
func (l *leases) release(ctx context.Context) {
	l.tries.Wait()
	var group sync.WaitGroup
	for _, one := range l.list() {
		group.Go(func() {
			_ = l.requests.repeat(ctx, repeatableRequest{step: WholeRun, machine: one.machine, limit: requestTimeout}, func(ctx context.Context, _ bool) error {
				return l.api.Release(ctx, one.machine, one.nonce)
			})
		})
	}
	group.Wait()
}

// end cancels the contexts of all leases.
func (l *leases) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, one := range l.held {
		one.cancel(errStopped)
	}
}
