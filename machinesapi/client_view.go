package machinesapi

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// Query queries the broker's view. The request is made when the answer is ranged
// over, and may be made again that way; leaving the loop ends it. The answer
// is complete if its last line is an End; any other end of it is an error.
// Codes: invalid (the statement; or what it asks for is too much), timeout
// (it took too long), rate_limited, unavailable (nothing was read, or the
// answer broke off).
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
				err = c.brokenOff(ctx, k, resp, err)
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// Subscription is a query whose answer is kept up to date. It is read by one
// goroutine.
type Subscription struct {
	ID string // for [Client.Resume]; "" when the server sent none

	client *Client
	ctx    context.Context //nolint:containedctx // of the request that is being read
	call   call
	resp   *http.Response
	stream viewStream
}

// Subscribe makes a query and then yields every change of its answer, until
// ctx ends or the subscription is closed. Codes: as [Client.Query], and
// rate_limited when there are too many subscriptions.
func (c *Client) Subscribe(ctx context.Context, q ViewQuery) (*Subscription, error) {
	k := call{method: http.MethodPost, path: path("view", "subscriptions"), in: q, reads: true}
	return c.subscription(ctx, k, viewStream{live: true})
}

// Resume continues a subscription after a change, on the broker that has
// it. Codes: not_found (it, or what followed the change, is no longer
// kept: subscribe again), unavailable, rate_limited.
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

// Lines yields the lines as they come, once. It ends with an error in any case:
// canceled, when ctx has ended; unavailable, when the stream broke off or its
// reader was too slow: then [Client.Resume] continues.
func (s *Subscription) Lines() iter.Seq2[ViewLine, error] {
	return func(yield func(ViewLine, error) bool) {
		for line, err := range s.stream.lines(s.resp.Body) {
			if err != nil {
				err = s.client.brokenOff(s.ctx, s.call, s.resp, err)
			}
			if !yield(line, err) {
				return
			}
		}
	}
}

// Change is the last change that was read: what to resume from.
func (s *Subscription) Change() uint64 { return s.stream.change }

// Close ends the stream. The server keeps the subscription for a while.
func (s *Subscription) Close() error { return s.resp.Body.Close() }

// ViewHealth returns the state of every member's copy of the view.
func (c *Client) ViewHealth(ctx context.Context) (ViewHealth, error) {
	return ask[ViewHealth](ctx, c, call{method: http.MethodGet, path: path("view", "health")})
}

// brokenOff returns the error of the end of a stream: the server's,
// or that the connection broke.
func (c *Client) brokenOff(ctx context.Context, k call, resp *http.Response, err error) error {
	e, ok := err.(*bourse.Error) //nolint:errorlint // made by the decoder, which wraps what it read
	if !ok || ctx.Err() != nil {
		return c.lost(ctx, k, err)
	}
	if e.Err == nil {
		e.Err = &ReplyError{Status: resp.StatusCode, RequestID: resp.Header.Get(HeaderRequestID)}
	}
	return e
}
