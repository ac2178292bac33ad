package warm

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/mux"
)

// Handler answers one payload. ctx ends when the worker abandons the call, at
// its deadline or before: then the answer is dropped. The call is the
// handler's until it returns, its payload too. A handler that panics ends the
// program.
type Handler func(ctx context.Context, call *Call) Answer

// Serve answers the calls of workers that connect to ln, at most concurrency at
// once (0: as many as come), until ctx ends or ln fails. Then it closes ln and
// all connections, and waits for the handlers, whose contexts have ended. The
// error is ln's, and nil when ctx ended.
func Serve(ctx context.Context, ln net.Listener, concurrency int, h Handler) error {
	s := mux.NewServer(mux.ServerConfig{Limits: limits, AtOnce: concurrency, Queue: bourse.MaxTaskConcurrency})
	defer s.Close(context.Canceled)
	defer s.Abort()
	stop := context.AfterFunc(ctx, func() { _ = ln.Close() }) // no more connections are accepted
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

// answer has the program's handler answer a call.
func answer(ctx context.Context, c *mux.Call, h Handler) mux.Answer {
	call := Call{Order: c.Subject, Deadline: c.Deadline, Type: c.Type, Payload: c.Payload}
	a := mux.Answer(h(callContext{ctx, c.Deadline}, &call))
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	if !limits.Allow(&a) {
		return mux.Answer{Status: http.StatusInternalServerError, Body: []byte("the program's answer is not in its bounds")}
	}
	return a
}

// callContext is the context of a handler. That the worker abandons the call at
// the deadline is the worker's to send: it needs no timer here.
type callContext struct {
	context.Context //nolint:containedctx // it is one
	deadline        time.Time
}

// Deadline returns when the worker will abandon the call.
func (c callContext) Deadline() (time.Time, bool) { return c.deadline, true }
