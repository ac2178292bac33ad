package tasks

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/bourse-dev/bourse"
)

// Headers of requests to a program.
const (
	headerOrder    = "Bourse-Order-Id"
	headerDeadline = "Bourse-Deadline" // the call's deadline, in RFC 3339 format with nanoseconds
)

// httpLink sends calls to a program over HTTP, using at most one connection per
// concurrent call.
type httpLink struct {
	address   string
	url       *url.URL
	transport *http.Transport
}

func newHTTPLink(address string, dial dialer) *httpLink {
	return &httpLink{address: address, url: &url.URL{Scheme: "http", Host: address, Path: "/"}, transport: &http.Transport{
		MaxIdleConnsPerHost:    bourse.MaxTaskConcurrency,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxReplyHeader,
		DisableCompression:     true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			conn, err := dial(ctx)
			if err != nil {
				return nil, errNotSent{err}
			}
			return conn, nil
		},
	}}
}

func (l *httpLink) drain() { l.transport.CloseIdleConnections() }

// userAgent is the User-Agent header of all requests. All requests share the slice, so it must not be changed.
var userAgent = []string{"bourse"}

// send sends one request. When ctx is done or the deadline passes, send closes the
// connection, so that the program notices that the request was canceled.
func (l *httpLink) send(ctx context.Context, task *bourse.TaskOrder, deadline time.Time, out *bourse.TaskResult) error {
	ctx, cancel := context.WithDeadlineCause(ctx, deadline, errTime)
	defer cancel()
	body := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(task.Payload)), nil }
	req := (&http.Request{
		Method: http.MethodPost, URL: l.url, Host: l.address,
		Header: http.Header{
			headerOrder: {string(out.Order)}, headerDeadline: {deadline.Format(time.RFC3339Nano)}, "User-Agent": userAgent,
		},
		ContentLength: int64(len(task.Payload)), GetBody: body, // allows the transport to retry if nothing was written
	}).WithContext(ctx)
	req.Body, _ = body()
	if task.Type != "" {
		req.Header["Content-Type"] = []string{task.Type}
	}
	resp, err := l.transport.RoundTrip(req)
	if err == nil {
		defer resp.Body.Close()
		err = readAnswer(resp, out, task.Output)
	}
	if err != nil && ctx.Err() != nil {
		return endedEarlyError{context.Cause(ctx)}
	}
	return err
}

// readAnswer reads a program's reply and fills in the result. If output is not nil, it
// also receives each part of the answer.
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
	answered(out, resp.StatusCode, bourse.MediaType(resp.Header.Get("Content-Type")), answer)
	return nil
}
