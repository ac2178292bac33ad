package machinesapi

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
)

// Client calls the public API of a broker. The zero value of each field but
// BaseURL is useful. It is safe for concurrent use and keeps no state. It repeats
// only requests that a server refused with 429 and Retry-After, since nothing was done
// for them; for everything else the error's code says what a repetition would
// do.
//
// Errors are *bourse.Error with the code of the server's reply, and a
// [ReplyError] below it. Besides the codes that a method names, any may return
//
//	unauthorized, forbidden  the token is refused, for this app or at all
//	unavailable              nothing happened: no connection, or no worker answered
//	timeout                  the outcome is unknown: the connection broke or the worker fell silent
//	canceled                 ctx ended
//	internal                 the server's fault
type Client struct {
	BaseURL string       // "http://127.0.0.1:4280", without /v1
	Token   string       // sent as a bearer token when it is not empty
	HTTP    *http.Client // default http.DefaultClient
	Retries int          // of a request that is refused with 429; default 3, negative: none
}

// ReplyError is the content of an error reply besides its code and text.
type ReplyError struct {
	Status    int
	Word      ErrorStatus // the body's; "" when it had none
	RequestID string      // as in the server's log; "" when the server sent none
	OrderID   bourse.OrderID
	Refusals  []bourse.Refusal
}

// Error names the request.
func (e *ReplyError) Error() string {
	if e.RequestID == "" {
		return fmt.Sprintf("HTTP status %d", e.Status)
	}
	return "request " + e.RequestID
}

// call is one request and where its reply goes.
type call struct {
	method string
	path   string // escaped, begins with /v1
	query  url.Values
	header http.Header
	in     any  // JSON body; nil for none
	reads  bool // it changes nothing, though it is no GET

	body io.Reader // instead of in: bytes that are sent while the reply comes
}

// do makes a call, and decodes its reply into out unless that is nil. The reply's header
// is returned also with an error, if there was a reply.
func (c *Client) do(ctx context.Context, k call, out any) (http.Header, error) {
	resp, err := c.send(ctx, k)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode > 299 {
		return resp.Header, replyError(resp)
	}
	if out == nil {
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, MaxBody)) // so that the connection can be used again
		return resp.Header, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return resp.Header, c.lost(ctx, k, fmt.Errorf("read the reply: %w", err))
	}
	return resp.Header, nil
}

// run makes a call and drops its reply.
func (c *Client) run(ctx context.Context, k call) error {
	_, err := c.do(ctx, k, nil)
	return err
}

// ask makes a call and returns its reply.
func ask[Reply any](ctx context.Context, c *Client, k call) (out Reply, err error) {
	_, err = c.do(ctx, k, &out)
	return out, err
}

// list makes a call for a list. It returns the reply and the workers whose part is
// missing because they did not answer.
func list[Reply any](ctx context.Context, c *Client, k call) (out Reply, silent []bourse.WorkerID, err error) {
	header, err := c.do(ctx, k, &out)
	if err != nil {
		var none Reply
		return none, nil, err
	}
	for id := range strings.SplitSeq(header.Get(HeaderUnreachable), ",") {
		if id != "" {
			silent = append(silent, bourse.WorkerID(strings.TrimSpace(id)))
		}
	}
	return out, silent, nil
}

// stream makes a call and returns its reply unread. The caller closes its body.
func (c *Client) stream(ctx context.Context, k call) (*http.Response, error) {
	resp, err := c.send(ctx, k)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode > 299 {
		defer func() { _ = resp.Body.Close() }()
		return nil, replyError(resp)
	}
	return resp, nil
}

// linesOf decodes the lines of a reply until it ends or cannot be read.
func linesOf[Line any](r io.Reader) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		for in := json.NewDecoder(r); ; {
			var l Line
			err := in.Decode(&l)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				err = fmt.Errorf("read the reply: %w", err)
			}
			if !yield(l, err) || err != nil {
				return
			}
		}
	}
}

// query builds query parameters from alternating names and values, without those whose
// value is empty.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// yes returns "true", or "" for false, which query leaves out.
func yes(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// positive returns a number as text, or "" unless it is positive.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// duration returns a duration as text, or "" unless it is positive.
func duration(d bourse.Duration) string {
	if d <= 0 {
		return ""
	}
	return time.Duration(d).String()
}

// header returns a header with one field, or with none if the value is empty.
func header(name, value string) http.Header {
	h := http.Header{}
	if value != "" {
		h.Set(name, value)
	}
	return h
}

// send sends a request, again while the server has no time for it, and returns
// the reply.
func (c *Client) send(ctx context.Context, k call) (*http.Response, error) {
	var in []byte
	if k.in != nil {
		var err error
		if in, err = json.Marshal(k.in); err != nil {
			return nil, bourse.Errorf(bourse.CodeInvalid, "encode the request: %w", err)
		}
	}
	for again := max(0, cmp.Or(c.Retries, defaultRetries)); ; again-- {
		resp, err := c.sendOnce(ctx, k, in)
		if err != nil || again == 0 || !repeatable(resp, k) {
			return resp, err
		}
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, MaxBody))
		_ = resp.Body.Close()
		if err := waitToRetry(ctx, resp); err != nil {
			return nil, c.lost(ctx, k, err)
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, k call, in []byte) (*http.Response, error) {
	body := k.body
	if k.in != nil {
		body = bytes.NewReader(in)
	}
	target := strings.TrimSuffix(c.BaseURL, "/") + k.path
	if len(k.query) > 0 {
		target += "?" + k.query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, k.method, target, body)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "address %s: %w", bourse.Quoted(c.BaseURL), err)
	}
	maps.Copy(req.Header, k.header)
	if k.in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	client := c.HTTP
	if client == nil {
		client = http.DefaultClient
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, c.lost(ctx, k, err)
	}
	return resp, nil
}

// lost returns the error of a request without a reply: nothing happened when no
// connection was made or the request only reads; otherwise the outcome is unknown.
func (c *Client) lost(ctx context.Context, k call, err error) error {
	if ctx.Err() != nil {
		return &bourse.Error{Code: bourse.CodeOf(ctx.Err()), Message: k.method + " " + k.path + ": " + ctx.Err().Error(), Err: err}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // its text repeats the address
	}
	if errors.Is(err, http.ErrSchemeMismatch) { // nothing was sent but a greeting
		return &bourse.Error{Code: bourse.CodeInvalid, Message: "the server at " + c.BaseURL + " speaks http, and was asked over https", Err: &NoReplyError{err}}
	}
	code := bourse.CodeTimeout
	if op, ok := errors.AsType[*net.OpError](err); (ok && op.Op == "dial") || k.method == http.MethodGet || k.reads {
		code = bourse.CodeUnavailable
	}
	if e, ok := errors.AsType[*bourse.Error](err); ok { // of a transport that knows better
		code = e.Code
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		code = bourse.CodeUnavailable // nothing was sent yet
	}
	return bourse.Errorf(code, "no answer from %s: %w", c.BaseURL, &NoReplyError{err})
}

// NoReplyError is the cause of an error when the API did not reply to a request. It
// distinguishes a failed connection to the API from one to another server.
type NoReplyError struct{ Err error }

// Error returns the cause's text.
func (e *NoReplyError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NoReplyError) Unwrap() error { return e.Err }

// replyError rebuilds the error that the server had.
func replyError(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, MaxBody)) // what there is of a broken body still helps
	var body ErrorBody
	if err := json.Unmarshal(raw, &body); err != nil || body.Error == "" {
		body = ErrorBody{Error: strings.TrimSuffix(fmt.Sprintf("%s: %s", resp.Status, shorten(raw)), ": ")}
	}
	if body.Code == "" {
		body.Code = CodeOfStatus(resp.StatusCode)
	}
	if resp.StatusCode == http.StatusBadRequest && resp.Request.URL.Scheme == "http" && bytes.HasPrefix(raw, []byte(wantsTLS)) {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: "the server at " + resp.Request.URL.Host + " speaks https, and was asked over http", Err: &NoReplyError{http.ErrSchemeMismatch}}
	}
	return &bourse.Error{Code: body.Code, Message: withoutPrefix(body.Code, body.Error), Err: &ReplyError{
		Status: resp.StatusCode, Word: body.Status, RequestID: resp.Header.Get(HeaderRequestID), OrderID: body.OrderID, Refusals: body.Refusals,
	}}
}

// wantsTLS begins what Go's servers with TLS reply to a request without.
const wantsTLS = "Client sent an HTTP request to an HTTPS server"

func shorten(b []byte) []byte { return b[:min(len(b), 256)] }

// path joins escaped segments: path("apps", app) is "/v1/apps/…".
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// Health asks whether the broker serves. No token is needed.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return ask[Health](ctx, c, call{method: http.MethodGet, path: path("health")})
}

// Regions lists the regions of the exchange. No token is needed.
func (c *Client) Regions(ctx context.Context) (RegionList, error) {
	return ask[RegionList](ctx, c, call{method: http.MethodGet, path: path("platform", "regions")})
}
