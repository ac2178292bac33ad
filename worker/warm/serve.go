package warm

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/mux"
)

// Handler answers one payload. ctx is done when the worker cancels the call, which is no later than
// the call's deadline. The answer is then discarded. The handler owns the call and its payload
// until it returns. A panic in a handler terminates the program.
type Handler func(ctx context.Context, call *Call) Answer

// Serve answers the calls of workers that connect to ln, with at most concurrency calls in progress
// (0 means no limit), until ctx is done or ln fails. If ctx is done, it closes ln. In both cases,
// it closes all connections, cancels the handlers' contexts and waits for the handlers. It returns
// nil if ctx is done, and otherwise ln's error.
func Serve(ctx context.Context, ln net.Listener, concurrency int, h Handler) error {
	s := mux.NewServer(mux.ServerConfig{Limits: limits, Concurrency: concurrency, Queue: bourse.MaxTaskConcurrency})
	defer s.Close(context.Canceled)
	defer s.Abort()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() }) // stops accepting connections
	defer stop()
	for {
		conn, err := ln.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				_ = conn.Close()
			}
			return nil
		case err != nil:
			return err
		}
		s.Serve(ctx, conn, conn, func(ctx context.Context, c *mux.Call) mux.Answer { return answer(ctx, c, h) })
	}
}

// answer calls the program's handler, and checks the answer against the limits.
func answer(ctx context.Context, c *mux.Call, h Handler) mux.Answer {
	call := Call{Order: c.Subject, Deadline: c.Deadline, Type: c.Type, Payload: c.Payload}
	a := mux.Answer(h(callContext{ctx, c.Deadline}, &call))
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if !limits.Allow(&a) {
		return mux.Answer{Status: http.StatusInternalServerError, Body: []byte("the program's answer exceeds its limits")}
	}
	return a
}

// callContext is a handler's context. It reports the call's deadline, but does not need a timer,
// because the worker notifies the program when it cancels the call.
type callContext struct {
	context.Context //nolint:containedctx // callContext is a context itself
	deadline        time.Time
}

// Deadline implements [context.Context]. It returns the time at which the worker cancels the call.
func (c callContext) Deadline() (time.Time, bool) { return c.deadline, true }
