package replication

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/wire"
)

// These are the paths that a Replicator's Handler serves. Request and response bodies are
// envelopes, with two exceptions: snapshots have the view's own format, and the health response is
// JSON.
const (
	pathDigest   = "/view/digest"
	pathPull     = "/view/pull"
	pathPush     = "/view/push"
	pathSnapshot = "/view/snapshot"
	pathHealth   = "/view/health"
)

// checkHeader is the header that contains the wire version and the hash of the cluster's id.
// Requests without an envelope need it.
const checkHeader = "Bourse-View"

// Maximum body sizes, in bytes. maxPullBody leaves space for a whole transaction in addition to
// maxChunk.
const (
	maxDigestBody  = 1 << 20
	maxPullRequest = 256 << 10
	maxPushBody    = wire.MaxTx + maxChunk
	maxPullBody    = maxChunk + wire.MaxTx + 64<<10
	maxHealthBody  = 8 << 20
)

func checkText(check uint64) string { return fmt.Sprintf("%d-%016x", envelopeVersion, check) }

// client sends requests to other members.
type client struct {
	caller   Caller
	check    uint64 // hash of the cluster's id, as in envelopes
	timeout  time.Duration
	peers    *peers
	count    *counters
	refusals *refusals
}

// ask sends an envelope to a member and returns the frames in the response. The response's body may
// be at most limit bytes long.
func (c *client) ask(ctx context.Context, to bourse.Member, path string, envelope []byte, limit int64) ([]frame, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	req := c.request(http.MethodPost, path, nil)
	req.ContentLength = int64(len(envelope))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(envelope)), nil }
	req.Body, _ = req.GetBody()
	c.count.httpBytesOut.Add(uint64(len(envelope)))
	body, err := c.read(ctx, to, req, limit)
	if err != nil {
		return nil, err
	}
	frames, err := openEnvelope(c.check, body)
	if err != nil {
		c.refusals.add(err, to.ID)
		return nil, bourse.Errorf(bourse.CodeInternal, "read the response from %s: %w", to.ID, err)
	}
	return frames, nil
}

// read sends a request and returns the body of the response, which may be at most limit bytes long.
func (c *client) read(ctx context.Context, to bourse.Member, req *http.Request, limit int64) ([]byte, error) {
	resp, err := c.call(ctx, to, req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	c.count.httpBytesIn.Add(uint64(len(body)))
	switch {
	case err != nil:
		c.peers.failed(to.ID, time.Now())
		return nil, bourse.Errorf(bourse.CodeUnavailable, "read the response from %s: %w", to.ID, err)
	case int64(len(body)) > limit:
		return nil, bourse.Errorf(bourse.CodeInternal, "the response from %s has more than %d bytes", to.ID, limit)
	}
	return body, nil
}

func (c *client) request(method, path string, query url.Values) *http.Request {
	return &http.Request{
		Method: method, URL: &url.URL{Path: path, RawQuery: query.Encode()}, Body: http.NoBody,
		Header: http.Header{checkHeader: {checkText(c.check)}},
		Proto:  "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

// call sends a request. If the response has status 200, call returns it with its body unread; any
// other status is an error. After a response with status 429, the member is not called again until
// the time in the Retry-After header has passed.
func (c *client) call(ctx context.Context, to bourse.Member, req *http.Request) (*http.Response, error) {
	resp, err := c.caller.Call(ctx, to, req)
	if err != nil {
		if ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded) {
			c.peers.failed(to.ID, time.Now())
		}
		return nil, err
	}
	if resp.StatusCode == http.StatusOK {
		c.peers.answered(to.ID)
		return resp, nil
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 200)) // the text is only used in the error message
	switch resp.StatusCode {
	case http.StatusTooManyRequests:
		c.peers.pauseFor(to.ID, time.Now(), retryAfter(resp))
		return nil, bourse.Errorf(bourse.CodeRateLimited, "%s is overloaded", to.ID)
	case http.StatusNotFound:
		return nil, bourse.Errorf(bourse.CodeNotFound, "%s does not have the requested data", to.ID)
	}
	c.peers.failed(to.ID, time.Now())
	return nil, bourse.Errorf(bourse.CodeUnavailable, "%s responded with status %d: %s", to.ID, resp.StatusCode, bourse.Quoted(string(text)))
}

// retryAfter returns how long the response asks the client to wait.
func retryAfter(resp *http.Response) time.Duration {
	seconds, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		seconds = 1
	}
	return time.Duration(min(seconds, 3600)) * time.Second
}
