package run

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
)

// Bounds of requests.
const (
	quick     = 30 * time.Second       // for one that does not wait for a program
	grace     = 10 * time.Second       // for those in progress when the run stops: then their outcome is unknown
	backFirst = 100 * time.Millisecond // between two tries
	backMost  = 2 * time.Second
)

// slots bounds the requests in progress: all of them, and those of one worker to a
// quarter, so that a worker that is slow to answer does not keep the others waiting.
type slots struct {
	all  chan struct{}
	each int

	mu  sync.Mutex
	tag map[bourse.WorkerTag]chan struct{}
}

func newSlots(n int) *slots {
	return &slots{all: make(chan struct{}, n), each: max(1, n/4), tag: map[bourse.WorkerTag]chan struct{}{}}
}

// take waits for a slot and returns what gives it back. Tag 0 is of no worker.
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

// request makes one request, which is not cut off at once when the run stops: it is better
// to know what became of it. A lease that is lost cuts it, as the end of the run does.
func (r *runner) request(ctx context.Context, tag bourse.WorkerTag, limit time.Duration, f func(context.Context) error) error {
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
			case <-r.opts.Abandon:
			case <-req.Done():
			}
		}
		cancel()
	})()
	return f(req)
}

// errBusy is in the chain of the error of a request that was refused because the machine is still being updated.
var errBusy = errors.New("the machine is being updated")

// busy returns the error of a request that has to wait until a machine's update has ended.
func busy(id bourse.MachineID) error {
	return &bourse.Error{Code: bourse.CodeUnavailable, Message: "machine " + string(id) + " is being updated", Err: errBusy}
}

// try is how a request goes that may be repeated.
type try struct {
	step    int
	machine bourse.MachineID // whose worker is asked; "": any
	limit   time.Duration    // for one request
}

// again repeats a request that gets no answer, until r.opts.Silence has passed since
// it last had one. A request that fails with errBusy has an answer: it is repeated for as
// long as a single request may take. f is told whether the outcome of an earlier try is
// unknown, and then finds out, or asks in a way that takes effect once.
func (r *runner) again(ctx context.Context, t try, f func(ctx context.Context, unknown bool) error) error {
	var since, refused time.Time
	unknown, told := false, false
	for wait := backFirst; ; wait = min(2*wait, backMost) {
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
		if silent := now.Sub(since); !since.IsZero() && silent > r.opts.Silence {
			return because("no answer for "+silent.Round(time.Second).String(), err)
		}
		if !told {
			told = true
			r.emit(Event{Step: t.step, State: Waiting, Machine: t.machine, Text: "asked again: " + bourse.MessageOf(err)})
		}
		if err := rest(ctx, wait/2+rand.N(wait)); err != nil {
			return err
		}
	}
}

// rest waits, and returns why it was cut short.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// because puts a text in front of an error's, which is said once.
func because(text string, err error) error {
	out := &bourse.Error{Code: bourse.CodeOf(err), Message: text + ": " + bourse.MessageOf(err), Err: err}
	if e, ok := errors.AsType[*bourse.Error](err); ok {
		out.Err = e.Err
	}
	return out
}
