package fabric

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
)

// Client is the worker's API on top of a Fabric, typed. Its errors are those
// of [Fabric.Call] and those that the worker answered with, code and message
// as the worker wrote them.
type Client struct {
	fabric    Fabric
	messenger Messenger // nil: the fabric is none
}

// NewClient makes the client of a fabric.
func NewClient(f Fabric) *Client {
	m, _ := f.(Messenger)
	return &Client{fabric: f, messenger: m}
}

// Ask puts an order to many workers side by side; see [Fabric].
func (c *Client) Ask(ctx context.Context, to []bourse.Member, order *bourse.Order, answer func(bourse.Quote)) {
	c.fabric.Ask(ctx, to, order, answer)
}

// ask is one call: where to and with what.
type ask struct {
	route route
	id    string     // in the path; escaped
	query url.Values // optional
	body  any        // optional

	stream io.ReadCloser // optional; the body, of no known length, sent while the reply comes
}

// exchange sends a to one worker and reads its reply.
func exchange[Reply any](ctx context.Context, c *Client, to bourse.Member, a ask) (Reply, error) {
	var reply Reply
	if c.messenger != nil && a.isAct() {
		if sent, err := c.message(ctx, to, &a, &reply); sent || err != nil {
			return reply, err
		}
	}
	resp, err := c.open(ctx, to, a)
	if err != nil {
		return reply, err
	}
	defer resp.Body.Close()
	err = readReply(ctx, to, resp, &reply, maxReply)
	return reply, err
}

// open sends a to one worker and returns its reply, unread, if it is not an error.
func (c *Client) open(ctx context.Context, to bourse.Member, a ask) (*http.Response, error) {
	req, err := a.route.request(a.id, a.query)
	if err != nil {
		return nil, err
	}
	if a.body != nil {
		if err := setBody(req, a.body); err != nil {
			return nil, err
		}
	}
	if a.stream != nil {
		req.Body, req.ContentLength = a.stream, -1
	}
	resp, err := c.fabric.Call(ctx, to, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, readFailure(ctx, to, resp)
	}
	return resp, nil
}

// setBody sets the body of req. What the worker would refuse for its size is
// refused here, before it is sent.
func setBody(req *http.Request, v any) error {
	body, err := encodeBody(v)
	if err != nil {
		return err
	}
	setBytes(req, body)
	return nil
}

func encodeBody(v any) ([]byte, error) {
	body, err := codec.Marshal(v)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the request cannot be written: %w", err)
	}
	if len(body) > MaxBody {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the request has %d bytes: at most %d", len(body), int64(MaxBody))
	}
	return body, nil
}

// setBytes sets the body of req to bytes, so that a Fabric
// may start over as long as nothing was written.
func setBytes(req *http.Request, body []byte) {
	req.Header["Content-Type"] = contentCBOR
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
}
