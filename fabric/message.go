package fabric

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Messenger is what a [Fabric] may implement, too: it carries a small act as one
// message, and its whole answer back, for less than a stream costs.
type Messenger interface {
	// Send sends one request to one worker and returns its answer; errors are
	// those of Call. Without sent it cannot be a message, being too large or to
	// a worker that takes none: nothing was sent, and Call can send it.
	Send(ctx context.Context, to bourse.Member, m *Message) (a Answer, sent bool, err error)
}

// Message is a request that is known whole.
type Message struct {
	Method string
	URI    string // path and query, escaped
	Body   []byte // nil: none. It is the sender's again when Send returns
}

// Answer is a reply that is known whole.
type Answer struct {
	Status int
	Body   []byte // the receiver's
}

// MaxAnswer bounds the body of an Answer.
const MaxAnswer = maxReply

// message sends a as a message and reads its answer into v. Without sent it is for
// a stream.
func (c *Client) message(ctx context.Context, to bourse.Member, a *ask, v any) (sent bool, err error) {
	u, err := a.route.url(a.id)
	if err != nil {
		return false, err
	}
	u.RawQuery = a.query.Encode()
	m := Message{Method: a.route.method, URI: u.RequestURI()}
	if a.body != nil {
		if m.Body, err = encodeBody(a.body); err != nil {
			return false, err
		}
	}
	reply, sent, err := c.messenger.Send(ctx, to, &m)
	switch {
	case err != nil || !sent:
		return false, err
	case reply.Status > 299:
		return true, failureIn(to, reply.Status, reply.Body)
	}
	return true, decodeReply(to, reply.Body, v)
}

// isAct reports whether a changes something. Lists are not acts: they may be
// long, and are better read as they come.
func (a *ask) isAct() bool { return a.route.method != http.MethodGet && a.stream == nil }
