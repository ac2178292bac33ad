package tasks

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/warm"
)

// frameLink sends calls to a program as frames. All concurrent calls share one connection.
type frameLink struct {
	dial dialer

	mu       sync.Mutex
	conn     *warm.Conn    // connection for new calls; nil before the first call and after the connection has broken
	dialing  chan struct{} // closed when a call has finished dialing; nil if no call is dialing
	draining bool          // if set, connections are closed when their last call ends
}

func newFrameLink(dial dialer) *frameLink { return &frameLink{dial: dial} }

// frameTries is the maximum number of connections that a call may try. A call is retried only if it was not sent, for
// example because the program was restarted and its old connection is closed.
const frameTries = 3

func (l *frameLink) send(ctx context.Context, task *bourse.TaskOrder, deadline time.Time, out *bourse.TaskResult) error {
	call := warm.Call{Order: string(out.Order), Deadline: deadline, Type: task.Type, Payload: task.Payload}
	for try := 1; ; try++ {
		conn, err := l.connect(ctx, deadline)
		if err != nil {
			return err
		}
		a, err := conn.Call(ctx, &call)
		l.after(conn, err)
		unsent, again := errors.AsType[warm.NotSent](err)
		switch {
		case err == nil:
			if task.Output != nil && len(a.Body) > 0 {
				task.Output(a.Body)
			}
			answered(out, a.Status, a.Type, a.Body)
			return nil
		case again && try == frameTries:
			return errNotSent{unsent.Err}
		case again:
		case errors.Is(err, context.DeadlineExceeded):
			return endedEarlyError{errTime}
		default:
			return err
		}
	}
}

// connect returns the connection for new calls. If several calls need a connection at the same time, they share one
// attempt to dial, which is limited by the deadline of the call that began it.
func (l *frameLink) connect(ctx context.Context, deadline time.Time) (*warm.Conn, error) {
	for {
		l.mu.Lock()
		if l.conn != nil {
			defer l.mu.Unlock()
			return l.conn, nil
		}
		wait := l.dialing
		if wait == nil {
			l.dialing = make(chan struct{})
		}
		l.mu.Unlock()
		if wait == nil {
			return l.dialNow(ctx, deadline)
		}
		if err := l.await(ctx, deadline, wait); err != nil {
			return nil, err
		}
	}
}

// await waits until another call has finished dialing.
func (l *frameLink) await(ctx context.Context, deadline time.Time, wait <-chan struct{}) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-wait:
		return nil
	case <-ctx.Done():
		return endedEarlyError{context.Cause(ctx)}
	case <-timer.C:
		return endedEarlyError{errTime}
	}
}

// dialNow opens a connection. Other calls may be waiting for it.
func (l *frameLink) dialNow(ctx context.Context, deadline time.Time) (*warm.Conn, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errTime)
	defer cancel()
	conn, err := l.dial(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.dialing)
	l.dialing = nil
	switch {
	case err == nil:
		l.conn = warm.NewConn(conn, idleTimeout)
		return l.conn, nil
	case ctx.Err() != nil:
		return nil, endedEarlyError{context.Cause(ctx)}
	}
	return nil, errNotSent{err}
}

// after must be called after each call. It ensures that a broken connection is not used for new calls, and that a
// connection is closed if it is no longer needed and its calls have ended.
func (l *frameLink) after(conn *warm.Conn, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil && conn.Ended() && l.conn == conn {
		l.conn = nil
	}
	if l.draining {
		conn.Leave()
	}
}

func (l *frameLink) drain() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draining = true
	if l.conn != nil {
		l.conn.Leave()
	}
}
