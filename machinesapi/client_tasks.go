package machinesapi

import (
	"context"
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
