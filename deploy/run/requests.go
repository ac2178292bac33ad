package run

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Limits for requests.
const (
	maxRequests    = 16               // maximum number of requests in progress
	requestTimeout = 30 * time.Second // time limit for a request that does not wait for a program
	// How long requests in progress may continue after the run stops. They are then canceled, and their outcome is
	// unknown.
	grace      = 10 * time.Second
	minBackoff = 100 * time.Millisecond // first pause between two attempts
	maxBackoff = 2 * time.Second
)

// requests sends a run's requests, and repeats them if necessary.
type requests struct {
	slots    *slots
	retryFor time.Duration // how long to repeat unanswered requests
	abandon  <-chan struct{}
	emit     func(Event)
}

// slots limits the number of requests in progress, both in total and per worker. The limit per worker is a quarter of
// the total, so that a slow worker does not delay the others.
type slots struct {
	all  chan struct{}
	each int

	mu  sync.Mutex
	tag map[bourse.WorkerTag]chan struct{}
}

func newSlots(n int) *slots {
	return &slots{all: make(chan struct{}, n), each: max(1, n/4), tag: map[bourse.WorkerTag]chan struct{}{}}
}

// take waits for a slot, and returns a function that frees the slot. tag identifies the worker that answers the
// request. It is 0 if the request is not for a particular worker.
func (s *slots) take(ctx context.Context, tag bourse.WorkerTag) (func(), error) {
	var own chan struct{}
	if tag != 0 {
		s.mu.Lock()
		if own = s.tag[tag]; own == nil {
			own = make(chan struct{}, s.each)
			s.tag[tag] = own
		}
		s.mu.Unlock()
		select {
		case own <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	select {
	case s.all <- struct{}{}:
	case <-ctx.Done():
		if own != nil {
			<-own
		}
		return nil, context.Cause(ctx)
	}
	return func() {
		<-s.all
		if own != nil {
			<-own
		}
	}, nil
}

// request sends a request by calling f. If the run stops, the request may take another 10 seconds (grace) to finish,
// because its outcome would otherwise be unknown. If the run is abandoned or a lease is lost, the request is canceled
// immediately.
func (r *requests) request(ctx context.Context, tag bourse.WorkerTag, limit time.Duration, f func(context.Context) error) error {
	free, err := r.slots.take(ctx, tag)
	if err != nil {
		return err
	}
	defer free()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	req, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errStopped) {
			late := time.NewTimer(grace)
			defer late.Stop()
			select {
			case <-late.C:
			case <-r.abandon:
			case <-req.Done():
			}
		}
		cancel()
	})()
	return f(req)
}

// errBusy is in the error chain of a request that was refused because the machine is being
// updated.
var errBusy = errors.New("the machine is being updated")

// errBusyMachine returns the error for a request that must wait until a machine's update has finished.
func errBusyMachine(id bourse.MachineID) error {
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "machine " + string(id) + " is being updated", Err: errBusy}
}

// repeatableRequest describes a request that may be repeated.
type repeatableRequest struct {
	step    int
	machine bourse.MachineID // machine whose worker answers the request; "" for any worker
	limit   time.Duration    // time limit for one attempt
}

// repeat sends a request by calling f, and repeats it if there is no answer (unavailable or timeout) or the answer is
// rate_limited. It gives up if this continues for r.retryFor. A request that fails with errBusy counts as answered, and
// is repeated for at most t.limit. f's argument unknown reports whether the outcome of an earlier attempt is unknown.
// If it is, f must first determine that outcome, or send a request that takes effect only once.
func (r *requests) repeat(ctx context.Context, t repeatableRequest, f func(ctx context.Context, unknown bool) error) error {
	var since, refused time.Time
	unknown, told := false, false
	for wait := minBackoff; ; wait = min(2*wait, maxBackoff) {
		err := r.request(ctx, t.machine.Tag(), t.limit, func(ctx context.Context) error { return f(ctx, unknown) })
		switch bourse.CodeOf(err) {
		case bourse.CodeUnavailable, bourse.CodeRateLimited:
		case bourse.CodeTimeout:
			unknown = true
		default:
			if told && err == nil {
				r.emit(Event{Step: t.step, State: Running, Machine: t.machine})
			}
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		now := time.Now()
		if errors.Is(err, errBusy) {
			if refused.IsZero() {
				refused = now
			}
			if waited := now.Sub(refused); waited > t.limit {
				return bourse.Errorf(bourse.CodeTimeout, "%s after %s", bourse.MessageOf(err), waited.Round(time.Second))
			}
			since = time.Time{}
		} else if since.IsZero() {
			since = now
		}
		if silent := now.Sub(since); !since.IsZero() && silent > r.retryFor {
			return prefixError("no answer for "+silent.Round(time.Second).String(), err)
		}
		if !told {
			told = true
			r.emit(Event{Step: t.step, State: Waiting, Machine: t.machine, Text: "retrying: " + bourse.MessageOf(err)})
		}
		if err := sleep(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
	}
}

// sleep waits for d. It returns an error if ctx is done first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// prefixError returns an error with the same code and cause as err. Its message is text, followed by err's message.
func prefixError(text string, err error) error {
	out := &bourse.Error{Code: bourse.CodeOf(err), Message: text + ": " + bourse.MessageOf(err), Err: err}
	if e, ok := errors.AsType[*bourse.Error](err); ok {
		out.Err = e.Err
	}
	return out
}
