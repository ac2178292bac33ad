package fabrictest

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// Memory is an in-process fabric. The function returns a worker's handler, or nil if the worker cannot be reached.
type Memory func(bourse.WorkerID) http.Handler

var _ fabric.Fabric = Memory(nil)

// Serving returns a fabric that sends the requests for all workers to one handler.
func Serving(h http.Handler) Memory { return func(bourse.WorkerID) http.Handler { return h } }

var (
	errNotThere = errors.New("no such worker")
	errBroken   = errors.New("the connection broke")
)

// Ask implements [fabric.Fabric].
func (m Memory) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	fabric.AskAll(ctx, m.Send, to, order, answer)
}

// Send implements [fabric.Fabric].
func (m Memory) Send(ctx context.Context, to bourse.Member, msg *fabric.Message) (fabric.Answer, error) {
	h := m(to.ID)
	switch {
	case ctx.Err() != nil:
		return fabric.Answer{}, fabric.Unsent(to, ctx.Err())
	case h == nil:
		return fabric.Answer{}, fabric.Unsent(to, errNotThere)
	}
	done := make(chan fabric.Answer, 1)
	go func() {
		done <- fabric.ServeMessage(ctx, &http.Request{RemoteAddr: "memory"}, msg, h, slog.New(slog.DiscardHandler))
	}()
	select {
	case a := <-done:
		if a.Status == 0 {
			return a, fabric.Lost(ctx, to, errBroken)
		}
		return a, nil
	case <-ctx.Done():
		return fabric.Answer{}, fabric.Lost(ctx, to, ctx.Err())
	}
}

// Call implements [fabric.Fabric].
func (m Memory) Call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	h := m(to.ID)
	switch {
	case ctx.Err() != nil:
		return nil, fabric.Unsent(to, ctx.Err())
	case h == nil:
		return nil, fabric.Unsent(to, errNotThere)
	}
	ctx, cancel := context.WithCancel(ctx)
	r := req.WithContext(ctx)
	r.RemoteAddr, r.RequestURI = "memory", req.URL.RequestURI()
	if r.Body == nil {
		r.Body = http.NoBody
	}
	if r.Header == nil {
		r.Header = http.Header{}
	}
	read, write := io.Pipe()
	w := &reply{header: http.Header{}, body: write, begun: make(chan struct{})}
	go func() {
		defer func() {
			if recover() != nil {
				_ = write.CloseWithError(errBroken)
			} else {
				w.WriteHeader(http.StatusOK)
				_ = write.Close()
			}
			w.once.Do(func() { close(w.begun) })
			_ = r.Body.Close()
		}()
		h.ServeHTTP(w, r)
	}()
	select {
	case <-w.begun:
	case <-ctx.Done():
		defer cancel()
		return nil, fabric.Lost(ctx, to, ctx.Err())
	}
	stop := context.AfterFunc(ctx, func() { _ = read.CloseWithError(ctx.Err()) })
	if w.hijacked != nil {
		stop()
		return w.switched(ctx, req, cancel)
	}
	if w.status == 0 {
		stop()
		cancel()
		return nil, fabric.Lost(req.Context(), to, errBroken)
	}
	return &http.Response{StatusCode: w.status, Header: w.sent, Body: replyBody{read, func() { stop(); cancel() }}}, nil
}

// reply is the http.ResponseWriter for a call.
type reply struct {
	header, sent http.Header
	status       int
	body         *io.PipeWriter
	once         sync.Once
	begun        chan struct{} // closed once status and sent are known
	hijacked     net.Conn      // the caller's end of the connection, once the handler has hijacked it
}

// Hijack implements http.Hijacker.
func (w *reply) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	ours, its := net.Pipe()
	w.once.Do(func() {
		w.hijacked = ours
		close(w.begun)
	})
	return its, bufio.NewReadWriter(bufio.NewReader(its), bufio.NewWriter(its)), nil
}

// switched reads the header of the reply to an upgrade request, and returns a response whose body is the connection.
func (w *reply) switched(ctx context.Context, req *http.Request, leave context.CancelFunc) (*http.Response, error) {
	r := bufio.NewReader(w.hijacked)
	resp, err := http.ReadResponse(r, req)
	if err != nil {
		leave()
		return nil, err
	}
	resp.Body = switched{w.hijacked, r, leave}
	if t := httptrace.ContextClientTrace(ctx); t != nil && t.GotConn != nil {
		t.GotConn(httptrace.GotConnInfo{Conn: w.hijacked})
	}
	return resp, nil
}

// switched is the body of a reply to an upgrade request. It represents the upgraded connection.
type switched struct {
	net.Conn
	r     io.Reader
	leave context.CancelFunc
}

func (s switched) Read(p []byte) (int, error) { return s.r.Read(p) }

func (s switched) Close() error {
	s.leave()
	return s.Conn.Close()
}

func (w *reply) Header() http.Header { return w.header }

func (w *reply) WriteHeader(status int) {
	w.once.Do(func() {
		w.status, w.sent = status, w.header.Clone()
		close(w.begun)
	})
}

func (w *reply) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	return w.body.Write(p)
}

// FlushError implements the interface that http.ResponseController expects.
func (w *reply) FlushError() error {
	w.WriteHeader(http.StatusOK)
	return nil
}

// replyBody is the body of a call's reply.
type replyBody struct {
	*io.PipeReader
	end func()
}

func (b replyBody) Close() error {
	b.end()
	return b.PipeReader.Close()
}
