package machinesapi

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// Query queries the broker's view. The request is sent each time the caller ranges over the result, and is canceled
// when the caller leaves the loop. The last line of a complete result is an End. An incomplete result ends with an
// error. Errors: invalid (the statement is invalid or its result is too large), timeout (the query took too long),
// rate_limited, unavailable (nothing was read, or the stream broke).
func (c *Client) Query(ctx context.Context, q ViewQuery) iter.Seq2[ViewLine, error] {
	return func(yield func(ViewLine, error) bool) {
		k := call{method: http.MethodPost, path: path("view", "queries"), in: q, reads: true}
		resp, err := c.stream(ctx, k)
		if err != nil {
			yield(ViewLine{}, err)
			return
		}
		defer func() { _ = resp.Body.Close() }()
		var v viewStream
		for line, err := range v.lines(resp.Body) {
			if err != nil {
				err = c.streamError(ctx, k, resp, err)
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// Subscription is a query whose result is kept up to date. Only one goroutine may read from it.
type Subscription struct {
	ID string // ID for [Client.Resume]; "" if the server sent none

	client *Client
	ctx    context.Context //nolint:containedctx // the context of the request whose reply is being read
	call   call
	resp   *http.Response
	stream viewStream
}

// Subscribe runs a query. After the result, the subscription yields all changes to the result
// until ctx is done or the subscription is closed. Errors: those of [Client.Query], and
// rate_limited if there are too many subscriptions.
func (c *Client) Subscribe(ctx context.Context, q ViewQuery) (*Subscription, error) {
	k := call{method: http.MethodPost, path: path("view", "subscriptions"), in: q, reads: true}
	return c.subscription(ctx, k, viewStream{live: true})
}

// Resume continues a subscription. from is the number of the last change that was read. The client must call the broker
// that has the subscription. Errors: not_found (the subscription or the next changes are no longer available: subscribe
// again), unavailable, rate_limited.
func (c *Client) Resume(ctx context.Context, id string, from uint64) (*Subscription, error) {
	k := call{
		method: http.MethodGet, path: path("view", "subscriptions", id),
		query: url.Values{"from": {strconv.FormatUint(from, 10)}},
	}
	s, err := c.subscription(ctx, k, viewStream{live: true, resumed: true, change: from})
	if err == nil && s.ID == "" {
		s.ID = id
	}
	return s, err
}

func (c *Client) subscription(ctx context.Context, k call, v viewStream) (*Subscription, error) {
	resp, err := c.stream(ctx, k) //nolint:bodyclose // the subscription closes it
	if err != nil {
		return nil, err
	}
	return &Subscription{ID: resp.Header.Get(HeaderSubscription), client: c, ctx: ctx, call: k, resp: resp, stream: v}, nil
}

// Lines yields the lines of the result as they arrive. It must be called only once. The sequence
// always ends with an error: canceled if ctx is done, or unavailable if the stream broke or its
// reader was too slow. If the error is unavailable, [Client.Resume] can continue the subscription.
func (s *Subscription) Lines() iter.Seq2[ViewLine, error] {
	return func(yield func(ViewLine, error) bool) {
		for line, err := range s.stream.lines(s.resp.Body) {
			if err != nil {
				err = s.client.streamError(s.ctx, s.call, s.resp, err)
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// Change returns the number of the last change that was read. Pass it to [Client.Resume].
func (s *Subscription) Change() uint64 { return s.stream.change }

// Close ends the stream. The server keeps the subscription for some time, so that it can be resumed.
func (s *Subscription) Close() error { return s.resp.Body.Close() }

// ViewHealth returns the state of every member's copy of the view.
func (c *Client) ViewHealth(ctx context.Context) (ViewHealth, error) {
	return ask[ViewHealth](ctx, c, call{method: http.MethodGet, path: path("view", "health")})
}

// streamError returns the error that ended a stream: either the server's error or a connection
// error.
func (c *Client) streamError(ctx context.Context, k call, resp *http.Response, err error) error {
	e, ok := err.(*bourse.Error) //nolint:errorlint // created by the decoder, which does not wrap it
	if !ok || ctx.Err() != nil {
		return c.noReply(ctx, k, err)
	}
	if e.Err == nil {
		e.Err = &ReplyError{Status: resp.StatusCode, RequestID: resp.Header.Get(HeaderRequestID)}
	}
	return e
}
