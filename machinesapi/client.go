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

// Client calls a broker's public API. Only BaseURL is required. A Client is stateless and safe for concurrent use. It
// retries a request only if the server refused it with 429 and Retry-After, because such a request had no effect. For
// other errors, the error's code tells the caller whether a retry is safe.
//
// Errors have the type *bourse.Error and the code of the server's reply, and wrap a [ReplyError]. In addition to the
// errors that a method lists, any method may return
//
//	unauthorized, forbidden  the token is invalid, or not valid for this app
//	unavailable              the request had no effect: the connection failed, or no worker answered
//	timeout                  the outcome is unknown: no reply arrived, or ctx's deadline passed
//	canceled                 ctx was canceled
//	internal                 an internal error occurred in the server
type Client struct {
	BaseURL string       // such as "http://127.0.0.1:4280", without /v1
	Token   string       // sent as a bearer token; "": no token is sent
	HTTP    *http.Client // default http.DefaultClient
	Retries int          // maximum number of retries after a 429; default 3, negative: none
}

// ReplyError contains the parts of an error reply that do not fit into bourse.Error.
type ReplyError struct {
	Status      int
	ErrorStatus ErrorStatus // status word in the body of the reply; "" if there is none
	RequestID   string      // ID of the request in the server's log; "" if the server sent none
	OrderID     bourse.OrderID
	Refusals    []bourse.Refusal
}

// Error returns a message with the request's ID, or with the HTTP status if the server sent no ID.
func (e *ReplyError) Error() string {
	if e.RequestID == "" {
		return fmt.Sprintf("HTTP status %d", e.Status)
	}
	return "request " + e.RequestID
}

// call describes one request.
type call struct {
	method string
	path   string // escaped; begins with /v1
	query  url.Values
	header http.Header
	in     any  // value of the JSON body; nil: no body
	reads  bool // the call has no effect on the server, although its method is not GET

	body io.Reader // streamed request body, which is sent while the reply arrives; replaces in
}

// do makes a call and decodes its reply into out, unless out is nil. If the server replied, do returns the reply's
// header, even if it also returns an error.
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
		_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, MaxBody)) // read the rest, so that the connection can be reused
		return resp.Header, nil
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return resp.Header, c.noReply(ctx, k, fmt.Errorf("read the reply: %w", err))
	}
	return resp.Header, nil
}

// run makes a call and discards its reply.
func (c *Client) run(ctx context.Context, k call) error {
	_, err := c.do(ctx, k, nil)
	return err
}

// ask makes a call and returns its reply.
func ask[Reply any](ctx context.Context, c *Client, k call) (out Reply, err error) {
	_, err = c.do(ctx, k, &out)
	return out, err
}

// list makes a call that returns a list. It returns the reply and the workers that did not answer, whose entries are
// missing from the list.
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

// stream makes a call and returns the reply before its body is read. The caller must close the
// body.
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

// linesOf decodes the lines of a reply, each of which is a JSON value. The sequence ends when the reply ends or a
// line cannot be decoded.
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

// query builds query parameters from alternating names and values. It omits empty values.
func query(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

// boolParam returns "true" if on is set, and otherwise "", so that query omits the parameter.
func boolParam(on bool) string {
	if on {
		return "true"
	}
	return ""
}

// positive formats n, or returns "" if n is not positive.
func positive(n int) string {
	if n <= 0 {
		return ""
	}
	return strconv.Itoa(n)
}

// duration formats d, or returns "" if d is not positive.
func duration(d bourse.Duration) string {
	if d <= 0 {
		return ""
	}
	return time.Duration(d).String()
}

// header returns a header with one field, or an empty header if the value is empty.
func header(name, value string) http.Header {
	h := http.Header{}
	if value != "" {
		h.Set(name, value)
	}
	return h
}

// send sends a request and returns the reply. It retries if the server is overloaded.
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
			return nil, c.noReply(ctx, k, err)
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
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid address %s: %w", bourse.Quoted(c.BaseURL), err)
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
		return nil, c.noReply(ctx, k, err)
	}
	return resp, nil
}

// noReply returns the error for a request without a reply. If the connection failed or the request only reads data,
// the code is unavailable, because the request had no effect. Otherwise the outcome is unknown, and the code is
// timeout.
func (c *Client) noReply(ctx context.Context, k call, err error) error {
	if ctx.Err() != nil {
		return &bourse.Error{Code: bourse.CodeOf(ctx.Err()), Message: k.method + " " + k.path + ": " + ctx.Err().Error(), Err: err}
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err // the outer error's text would repeat the address
	}
	if errors.Is(err, http.ErrSchemeMismatch) { // only the start of the TLS handshake was sent
		return &bourse.Error{Code: bourse.CodeInvalid, Message: "the server at " + c.BaseURL + " uses http, not https", Err: &NoReplyError{err}}
	}
	code := bourse.CodeTimeout
	if op, ok := errors.AsType[*net.OpError](err); (ok && op.Op == "dial") || k.method == http.MethodGet || k.reads {
		code = bourse.CodeUnavailable
	}
	if e, ok := errors.AsType[*bourse.Error](err); ok { // the transport knows whether the request had an effect
		code = e.Code
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		code = bourse.CodeUnavailable // the request has not been sent yet
	}
	return bourse.Errorf(code, "no answer from %s: %w", c.BaseURL, &NoReplyError{err})
}

// NoReplyError is the cause of an error that occurred because the API did not reply to a request. It allows the
// caller to distinguish a failed connection to the API from a failed connection between servers.
type NoReplyError struct{ Err error }

// Error returns the text of the cause.
func (e *NoReplyError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *NoReplyError) Unwrap() error { return e.Err }

// replyError converts an error reply to an error.
func replyError(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, MaxBody)) // if reading fails, use what was read
	var body ErrorBody
	if err := json.Unmarshal(raw, &body); err != nil || body.Error == "" {
		body = ErrorBody{Error: strings.TrimSuffix(fmt.Sprintf("%s: %s", resp.Status, shorten(raw)), ": ")}
	}
	if body.Code == "" {
		body.Code = CodeOfStatus(resp.StatusCode)
	}
	if resp.StatusCode == http.StatusBadRequest && resp.Request.URL.Scheme == "http" && bytes.HasPrefix(raw, []byte(tlsRequiredText)) {
		return &bourse.Error{Code: bourse.CodeInvalid, Message: "the server at " + resp.Request.URL.Host + " uses https, not http", Err: &NoReplyError{http.ErrSchemeMismatch}}
	}
	return &bourse.Error{Code: body.Code, Message: withoutPrefix(body.Code, body.Error), Err: &ReplyError{
		Status: resp.StatusCode, ErrorStatus: body.Status, RequestID: resp.Header.Get(HeaderRequestID), OrderID: body.OrderID, Refusals: body.Refusals,
	}}
}

// tlsRequiredText is the start of the reply that Go's TLS servers send to a plain HTTP request.
const tlsRequiredText = "Client sent an HTTP request to an HTTPS server"

func shorten(b []byte) []byte { return b[:min(len(b), 256)] }

// path escapes path segments and joins them after /v1: path("apps", app) returns "/v1/apps/…".
func path(segments ...string) string {
	var b strings.Builder
	b.WriteString("/v1")
	for _, s := range segments {
		b.WriteByte('/')
		b.WriteString(url.PathEscape(s))
	}
	return b.String()
}

// Health returns the broker's health. It does not require a token.
func (c *Client) Health(ctx context.Context) (Health, error) {
	return ask[Health](ctx, c, call{method: http.MethodGet, path: path("health")})
}

// Regions lists the regions of the exchange. It does not require a token.
func (c *Client) Regions(ctx context.Context) (RegionList, error) {
	return ask[RegionList](ctx, c, call{method: http.MethodGet, path: path("platform", "regions")})
}
