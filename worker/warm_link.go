package worker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/bourse-dev/bourse"
)

// warmLink is the way of payloads to one machine's program, in the protocol
// that it speaks.
type warmLink interface {
	// send gives a payload to the program and fills in its answer. ctx is that of
	// the call: at its end, and at the deadline, the program is told. The error is
	// errNotSent when not a byte of the payload has left, errCut when the call was
	// ended from here, and anything else when there is no proper answer.
	send(ctx context.Context, task *bourse.TaskOrder, deadline time.Time, out *bourse.TaskResult) error
	// leave closes the connections that no call uses, and those of calls as they
	// end. It does not wait.
	leave()
}

// errNotSent marks a call whose program could not be connected to: not a byte
// of the payload has left.
type errNotSent struct{ error }

func (e errNotSent) Unwrap() error { return e.error }

// errCut marks a call that was ended from here, with why.
type errCut struct{ error }

func (e errCut) Unwrap() error { return e.error }

// errTaskTime ends a call whose time is over.
var errTaskTime = errors.New("the task's time is over")

// warmDial connects to one machine's program.
type warmDial func(context.Context) (net.Conn, error)

// warmLinkTo makes the link to a machine's program as it is now. s.mu is held.
func (w *Worker) warmLinkTo(m *warmMachine) warmLink {
	id, address, port, private := m.id, m.address, m.port, m.private
	dial := func(ctx context.Context) (net.Conn, error) {
		return w.dialWarm(ctx, m, func(ctx context.Context) (net.Conn, error) {
			if !private {
				return (&net.Dialer{}).DialContext(ctx, "tcp", address)
			}
			if w.cfg.Network == nil {
				return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker was started without networks")
			}
			return w.cfg.Network.Dial(ctx, id, port)
		})
	}
	if m.protocol == bourse.TaskFrames {
		return newFrameLink(dial)
	}
	return newHTTPLink(address, dial)
}

const (
	dialFirst = 2 * time.Millisecond // between two attempts; doubles
	dialMost  = 100 * time.Millisecond
)

// dialWarm connects to a machine's program. One that was started a moment ago
// may not listen yet: it is waited for.
func (w *Worker) dialWarm(ctx context.Context, m *warmMachine, dial warmDial) (net.Conn, error) {
	w.warm.mu.Lock()
	until := m.since.Add(w.warm.patience)
	w.warm.mu.Unlock()
	for pause := dialFirst; ; pause = min(2*pause, dialMost) {
		conn, err := dial(ctx)
		if err == nil || ctx.Err() != nil || time.Now().After(until) {
			return conn, err
		}
		w.rest(ctx, pause)
		if stopped := w.warmGone(m); stopped {
			return nil, err
		}
	}
}

// warmGone tells whether a machine has stopped to serve, as far as is known.
func (w *Worker) warmGone(m *warmMachine) bool {
	list, err := w.warmFor([]bourse.MachineID{m.id})
	if err != nil || len(list) == 0 {
		return err == nil
	}
	w.warm.mu.Lock()
	defer w.warm.mu.Unlock()
	return list[0] != m || m.places == 0
}

// send gives a payload to a machine's program and fills in how that ended. ctx
// is that of the call; its end is told to the program. The error is errNotSent
// when nothing has begun.
func (w *Worker) send(ctx context.Context, m *warmMachine, task *bourse.TaskOrder, out *bourse.TaskResult) error {
	w.warm.mu.Lock()
	limit, link := time.Duration(task.Timeout), m.link
	if m.limit > 0 {
		limit = min(limit, m.limit)
	}
	w.warm.mu.Unlock()
	err := link.send(ctx, task, out.StartedAt.Add(limit), out)
	if err == nil {
		return nil
	}
	if _, unsent := errors.AsType[errNotSent](err); unsent && ctx.Err() == nil {
		return err
	}
	if _, ok := errors.AsType[errCut](err); !ok && ctx.Err() != nil { // whatever that has broken
		err = errCut{context.Cause(ctx)}
	}
	w.broken(m, limit, err, out)
	return nil
}

// broken fills in how a call ended that has no proper reply.
func (w *Worker) broken(m *warmMachine, limit time.Duration, err error, out *bourse.TaskResult) {
	out.ExitCode, out.Answer = -1, nil
	cut, ended := errors.AsType[errCut](err)
	switch {
	case !ended:
		out.End, out.Error = bourse.TaskBroken, fmt.Sprintf("the program of machine %s did not answer: %v", m.id, err)
	case errors.Is(cut, errTaskTime):
		out.End, out.Error = bourse.TaskTimeout, fmt.Sprintf("it was ended after its timeout of %s", limit)
	default:
		out.End, out.Error = bourse.TaskCanceled, "it was canceled: "+cut.Error()
	}
}

// answered fills in a program's answer: 2xx is one, anything else a failure
// that says why.
func answered(out *bourse.TaskResult, status int, kind string, answer []byte) {
	out.Answer, out.Status, out.Type = answer, status, kind
	out.End = bourse.TaskAnswered
	if status > 299 {
		out.End, out.ExitCode = bourse.TaskFailed, 1
		out.Error = fmt.Sprintf("the program answered with status %d", status)
	}
}
