package machinesapi

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// RunTask has work done and waits for its end. A non-empty order id makes a
// repetition get the first call's end. A task that its program did not answer
// is no error: see [TaskReply]. Codes: invalid, not_found (the app),
// insufficient_capacity (the [ReplyError] has the refusals and the order id),
// timeout (a worker may have begun it: repeat with the order id of the
// [ReplyError]).
func (c *Client) RunTask(ctx context.Context, app bourse.AppName, in RunTask, order bourse.OrderID) (TaskReply, error) {
	header := http.Header{}
	if order != "" {
		header.Set(HeaderOrderID, string(order))
	}
	var out TaskReply
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("apps", string(app), "tasks"), header: header, in: in, out: &out})
	return out, err
}

// StreamTask is [Client.RunTask] that calls a function with the answer's parts as they come,
// from the calling goroutine. The reply has the whole answer, too.
func (c *Client) StreamTask(ctx context.Context, app bourse.AppName, in RunTask, order bourse.OrderID, output func([]byte)) (TaskReply, error) {
	header := http.Header{"Accept": {TypeLines}}
	if order != "" {
		header.Set(HeaderOrderID, string(order))
	}
	k := call{method: http.MethodPost, path: path("apps", string(app), "tasks"), header: header, in: in}
	resp, err := c.send(ctx, k)
	if err != nil {
		return TaskReply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		return TaskReply{}, replyError(resp)
	}
	lines := json.NewDecoder(resp.Body)
	for {
		var l TaskLine
		if err := lines.Decode(&l); err != nil {
			return TaskReply{}, c.lost(ctx, k, fmt.Errorf("read the answer: %w", err))
		}
		switch {
		case l.Result != nil:
			return *l.Result, nil
		case l.Error != nil:
			return TaskReply{}, &bourse.Error{Code: l.Error.Code, Message: withoutPrefix(l.Error.Code, l.Error.Error), Err: &ReplyError{
				Status: resp.StatusCode, RequestID: l.Error.RequestID, OrderID: l.Error.OrderID,
			}}
		case len(l.OutputBase64) > 0:
			output(l.OutputBase64)
		case l.Output != "":
			output([]byte(l.Output))
		}
	}
}
