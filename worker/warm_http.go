package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/bourse-dev/bourse"
)

// The headers of a payload on its way to a program.
const (
	headerOrder    = "Bourse-Order-Id"
	headerDeadline = "Bourse-Deadline" // RFC 3339 with nanoseconds: when the call will be cut
)

// errNotSent marks a call whose program could not be connected to: not a byte
// of the payload has left.
type errNotSent struct{ error }

func (e errNotSent) Unwrap() error { return e.error }

// warmTransport makes the connections to one machine's program, of which there
// are never more than places in use.
func (w *Worker) warmTransport(m *warmMachine) *http.Transport {
	id, address, port, private := m.id, m.address, m.port, m.private
	return &http.Transport{
		MaxIdleConnsPerHost:    bourse.MaxTaskConcurrency,
		IdleConnTimeout:        warmIdle,
		MaxResponseHeaderBytes: maxReplyHeader,
		DisableCompression:     true,
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			conn, err := w.dialWarm(ctx, m, func(ctx context.Context) (net.Conn, error) {
				if !private {
					return (&net.Dialer{}).DialContext(ctx, network, address)
				}
				if w.cfg.Network == nil {
					return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker was started without networks")
				}
				return w.cfg.Network.Dial(ctx, id, port)
			})
			if err != nil {
				return nil, errNotSent{err}
			}
			return conn, nil
		},
	}
}

const (
	dialFirst = 2 * time.Millisecond // between two attempts; doubles
	dialMost  = 100 * time.Millisecond
)

// dialWarm connects to a machine's program. One that was started a moment ago
// may not listen yet: it is waited for.
func (w *Worker) dialWarm(ctx context.Context, m *warmMachine, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
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
// is that of the call; its end cuts the connection, which the program sees as
// the end of its request. The error is errNotSent when nothing has begun.
func (w *Worker) send(ctx context.Context, m *warmMachine, task *bourse.TaskOrder, out *bourse.TaskResult) error {
	w.warm.mu.Lock()
	limit, transport, address := time.Duration(task.Timeout), m.http, m.address
	if m.limit > 0 {
		limit = min(limit, m.limit)
	}
	w.warm.mu.Unlock()
	deadline := out.StartedAt.Add(limit)
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errTaskTime)
	defer cancel()
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(task.Payload)), nil }
	req := (&http.Request{
		Method: http.MethodPost, URL: &url.URL{Scheme: "http", Host: address, Path: "/"}, Host: address,
		Header: http.Header{
			headerOrder: {string(out.Order)}, headerDeadline: {deadline.Format(time.RFC3339Nano)}, "User-Agent": {"bourse"},
		},
		ContentLength: int64(len(task.Payload)), GetBody: body, // so that it may begin again as long as nothing was written
	}).WithContext(ctx)
	req.Body, _ = body()
	if task.Type != "" {
		req.Header["Content-Type"] = []string{task.Type}
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		if _, unsent := errors.AsType[errNotSent](err); unsent && ctx.Err() == nil {
			return err
		}
		w.broken(ctx, m, limit, err, out)
		return nil
	}
	defer resp.Body.Close()
	if err := readAnswer(resp, out, task.Output); err != nil {
		w.broken(ctx, m, limit, err, out)
	}
	return nil
}

// errTaskTime ends the context of a call whose time is over.
var errTaskTime = errors.New("the task's time is over")

// broken fills in how a call ended that has no proper reply.
func (w *Worker) broken(ctx context.Context, m *warmMachine, limit time.Duration, err error, out *bourse.TaskResult) {
	out.ExitCode, out.Answer = -1, nil
	switch cause := context.Cause(ctx); {
	case cause == nil:
		out.End, out.Error = bourse.TaskBroken, fmt.Sprintf("the program of machine %s did not answer: %v", m.id, err)
	case errors.Is(cause, errTaskTime):
		out.End, out.Error = bourse.TaskTimeout, fmt.Sprintf("it was ended after its timeout of %s", limit)
	default:
		out.End, out.Error = bourse.TaskCanceled, "it was canceled: "+cause.Error()
	}
}

// readAnswer reads a program's reply: 2xx is an answer, anything else a
// failure that says why.
func readAnswer(resp *http.Response, out *bourse.TaskResult, output func([]byte)) error {
	answer := make([]byte, 0, max(512, min(resp.ContentLength, bourse.MaxAnswer)+1))
	for {
		if len(answer) > bourse.MaxAnswer {
			return bourse.Errorf(bourse.CodeInvalid, "its answer has more than %d bytes", bourse.MaxAnswer)
		}
		if len(answer) == cap(answer) {
			answer = append(answer, 0)[:len(answer)]
		}
		n, err := resp.Body.Read(answer[len(answer):cap(answer)])
		if output != nil && n > 0 {
			output(answer[len(answer) : len(answer)+n])
		}
		answer = answer[:len(answer)+n]
		if errors.Is(err, io.EOF) && len(answer) <= bourse.MaxAnswer {
			break
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
	}
	out.Answer, out.Status, out.Type = answer, resp.StatusCode, bourse.MediaType(resp.Header.Get("Content-Type"))
	out.End = bourse.TaskAnswered
	if resp.StatusCode > 299 {
		out.End, out.ExitCode = bourse.TaskFailed, 1
		out.Error = fmt.Sprintf("the program answered with status %d", resp.StatusCode)
	}
	return nil
}
