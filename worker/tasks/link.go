package tasks

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/state"
)

// link sends payloads to one machine's program, in the program's protocol.
type link interface {
	// send sends a payload to the program and fills in the answer. When ctx is done or the deadline passes, it cancels
	// the call and notifies the program. The error is errNotSent if no part of the payload was sent, and
	// endedEarlyError if the worker canceled the call. Any other error means that the program did not answer properly.
	send(ctx context.Context, task *bourse.TaskOrder, deadline time.Time, out *bourse.TaskResult) error
	// drain closes idle connections immediately, and other connections when their calls end. It does not block.
	drain()
}

// errNotSent is returned if no part of a call was sent, for example because the worker could not connect to the
// program.
type errNotSent struct{ error }

func (e errNotSent) Unwrap() error { return e.error }

// endedEarlyError is returned if the worker ended a call early. It wraps the reason.
type endedEarlyError struct{ error }

func (e endedEarlyError) Unwrap() error { return e.error }

// errTime is the reason for ending a call at its deadline.
var errTime = errors.New("the task's time limit has passed")

// dialer connects to one machine's program.
type dialer func(context.Context) (net.Conn, error)

// linkTo returns a new link to a machine's program. The caller must hold t.warm.mu.
func (t *Tasks) linkTo(m *warmMachine) link {
	id, address, port, private := m.id, m.address, m.port, m.private
	dial := func(ctx context.Context) (net.Conn, error) {
		return t.dialWarm(ctx, m, func(ctx context.Context) (net.Conn, error) {
			if !private {
				return (&net.Dialer{}).DialContext(ctx, "tcp", address)
			}
			if t.network == nil {
				return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker was started without networks")
			}
			return t.network.Dial(ctx, id, port)
		})
	}
	if m.protocol == bourse.TaskFrames {
		return newFrameLink(dial)
	}
	return newHTTPLink(address, dial)
}

const (
	minDialDelay = 2 * time.Millisecond // delay between the first two attempts; it doubles each time
	maxDialDelay = 100 * time.Millisecond
)

// dialWarm connects to a machine's program. If the program was started a moment ago and
// does not listen yet, dialWarm waits for it.
func (t *Tasks) dialWarm(ctx context.Context, m *warmMachine, dial dialer) (net.Conn, error) {
	t.warm.mu.Lock()
	until := m.since.Add(t.warm.timeout)
	t.warm.mu.Unlock()
	for pause := minDialDelay; ; pause = min(2*pause, maxDialDelay) {
		conn, err := dial(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(until) {
			return conn, err
		}
		state.Sleep(ctx, pause)
		if stopped := t.warmGone(m); stopped {
			return nil, err
		}
	}
}

// warmGone reads a machine from the store, and reports whether it no longer accepts tasks.
func (t *Tasks) warmGone(m *warmMachine) bool {
	list, err := t.warmFor([]bourse.MachineID{m.id})
	if err != nil || len(list) == 0 {
		return err == nil
	}
	t.warm.mu.Lock()
	defer t.warm.mu.Unlock()
	return list[0] != m || m.places == 0
}

// send sends a payload to a machine's program. If the payload was not sent for a reason other than ctx, it returns
// errNotSent and does not fill in out. In all other cases, it fills in out and returns nil, even if the call failed.
// send notifies the program when ctx is done.
func (t *Tasks) send(ctx context.Context, m *warmMachine, task *bourse.TaskOrder, out *bourse.TaskResult) error {
	t.warm.mu.Lock()
	limit, link := time.Duration(task.Timeout), m.link
	if m.limit > 0 {
		limit = min(limit, m.limit)
	}
	t.warm.mu.Unlock()
	err := link.send(ctx, task, out.StartedAt.Add(limit), out)
	if err == nil {
		return nil
	}
	if _, unsent := errors.AsType[errNotSent](err); unsent && ctx.Err() == nil {
		return err
	}
	if _, ok := errors.AsType[endedEarlyError](err); !ok && ctx.Err() != nil { // err occurred because ctx is done
		err = endedEarlyError{context.Cause(ctx)}
	}
	t.recordBroken(m, limit, err, out)
	return nil
}

// recordBroken fills in the result of a call that was ended early, or that the program did not answer properly.
func (t *Tasks) recordBroken(m *warmMachine, limit time.Duration, err error, out *bourse.TaskResult) {
	out.ExitCode, out.Answer = -1, nil
	cut, ended := errors.AsType[endedEarlyError](err)
	switch {
	case !ended:
		out.End, out.Error = bourse.TaskBroken, fmt.Sprintf("the program of machine %s did not answer: %v", m.id, err)
	case errors.Is(cut, errTime):
		out.End, out.Error = bourse.TaskTimeout, fmt.Sprintf("it was stopped after its timeout of %s", limit)
	default:
		out.End, out.Error = bourse.TaskCanceled, "it was canceled: "+cut.Error()
	}
}

// answered fills in a program's answer. A status other than 2xx is a failure.
func answered(out *bourse.TaskResult, status int, kind string, answer []byte) {
	out.Answer, out.Status, out.Type = answer, status, kind
	out.End = bourse.TaskAnswered
	if status > 299 {
		out.End, out.ExitCode = bourse.TaskFailed, 1
		out.Error = fmt.Sprintf("the program answered with status %d", status)
	}
}
