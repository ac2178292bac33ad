package direct

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/admission"
	"github.com/bourse-dev/bourse/internal/mux"
)

// callsPath and callsProtocol identify the upgrade request that opens a connection for calls.
const (
	callsPath     = "/worker/calls"
	callsProtocol = "bourse-calls"
)

const (
	// stall is how long the other end may take to read pending data.
	stall = 5 * time.Second
	// callerTimeout is how long a caller may be silent before its connection is closed. Callers
	// ping more often.
	callerTimeout = 4 * (pingAfter + pingTimeout)
	maxCalls      = 4096 // maximum number of concurrent calls; further calls are refused
)

// open dials a worker and upgrades the connection to calls.
func (cs *conns) open(ctx context.Context, to *bourse.Member) (*mux.Conn, error) {
	c, err := cs.dial(ctx, "tcp", to.Address)
	if err != nil {
		return nil, err
	}
	below := mux.NewPipe(c)
	var conn net.Conn = below
	if cs.config != nil {
		if conn, err = handshake(ctx, below, cs.config, serverName(*to), "http/1.1"); err != nil {
			return nil, err
		}
	}
	if err := upgrade(ctx, conn, to, cs.proof); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return mux.NewConn(conn, below, mux.Config{
		Limits: limits, Idle: clientIdle, Stall: stall, Ping: pingAfter, Pong: pingTimeout,
	}), nil
}

var errUnexpectedData = errors.New("the server sent data before it received a request")

// refused is the error for a rejected upgrade request. It contains the server's response, which becomes the answer to
// every call.
type refused struct{ answer fabric.Answer }

func (r *refused) Error() string {
	return "the server does not accept calls: " + http.StatusText(r.answer.Status)
}

// upgrade asks a worker to switch the connection to package mux's protocol for calls. If the worker refuses, the error is a *refused.
func upgrade(ctx context.Context, conn net.Conn, to *bourse.Member, proof admission.Proof) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	ask := &http.Request{
		Method: http.MethodGet, URL: &url.URL{Path: callsPath}, Host: to.Address, ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{"Connection": {"Upgrade"}, "Upgrade": {callsProtocol}, headerTo: {string(to.ID)}},
	}
	proof.ShowTo(ask.Header, to.Address)
	if err := ask.Write(conn); err != nil {
		return err
	}
	r := bufio.NewReader(io.LimitReader(conn, maxHeader))
	answer, err := http.ReadResponse(r, ask) //nolint:bodyclose // it ends with the connection
	if err != nil {
		return err
	}
	switch {
	case answer.StatusCode == http.StatusSwitchingProtocols && answer.Header.Get("Upgrade") == callsProtocol:
		if r.Buffered() > 0 {
			return errUnexpectedData
		}
		if !stop() {
			return ctx.Err() // the deadline has been set, or is about to be
		}
		return nil
	case answer.StatusCode == http.StatusMisdirectedRequest:
		return errWrongServer
	}
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return &refused{fabric.Answer{Status: answer.StatusCode, Body: body}}
}

// calls serves calls on the connections to a server.
type calls struct {
	*mux.Server
	log *slog.Logger
}

type callsKey struct{}

func newCalls(log *slog.Logger) *calls {
	return &calls{log: log, Server: mux.NewServer(mux.ServerConfig{
		Limits: limits, Concurrency: maxCalls, IdleTimeout: callerTimeout, WriteTimeout: stall, Refuse: func(why error) mux.Answer {
			var h fabric.BufferedReply
			fabric.WriteFailure(&h, bourse.Errorf(bourse.CodeUnavailable, "%w", why))
			return mux.Answer{Status: h.Status(), Body: h.Bytes()}
		},
	})}
}

// asksForCalls reports whether a request asks to upgrade its connection to calls.
func asksForCalls(r *http.Request) bool {
	return r.Method == http.MethodGet && r.URL.Path == callsPath && r.Header.Get("Upgrade") == callsProtocol
}

// serveCalls upgrades a request's connection and serves the calls on it with handler. The handler's requests have the
// same sender as the upgrade request.
func serveCalls(w http.ResponseWriter, r *http.Request, handler http.Handler) {
	c, ok := r.Context().Value(callsKey{}).(*calls)
	if !ok || r.ProtoMajor != 1 {
		http.NotFound(w, r)
		return
	}
	if c.Draining() {
		fabric.WriteFailure(w, bourse.Errorf(bourse.CodeUnavailable, "%w", errClosing))
		return
	}
	conn, ahead, err := http.NewResponseController(w).Hijack()
	if err != nil {
		http.NotFound(w, r)
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(stall)) // if this fails, the write fails with the same error
	const yes = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + callsProtocol + "\r\n\r\n"
	if _, err := io.WriteString(conn, yes); err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetWriteDeadline(time.Time{})
	first, _ := ahead.Reader.Peek(ahead.Reader.Buffered()) // cannot fail, because the data is buffered
	src := io.MultiReader(bytes.NewReader(slices.Clone(first)), conn)
	like := r.WithContext(context.WithoutCancel(r.Context()))
	c.Serve(r.Context(), conn, src, func(ctx context.Context, call *mux.Call) mux.Answer {
		m := fabric.Message{Method: call.Type, URI: call.Subject, Body: call.Payload}
		a := fabric.ServeMessage(ctx, like, &m, handler, c.log)
		return mux.Answer{Status: a.Status, Body: a.Body}
	})
}
