package fabric

import (
	"bytes"
	"context"
	"io"
	"net/url"

	"github.com/bourse-dev/bourse"
)

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

// Send is the method of [Fabric] by itself.
type Send func(ctx context.Context, to bourse.Member, m *Message) (Answer, error)

// SendByCall is Send for what a Fabric sends by a request of its own.
func SendByCall(ctx context.Context, call Call, to bourse.Member, m *Message) (Answer, error) {
	u, err := url.ParseRequestURI(m.URI)
	if err != nil {
		return Answer{}, bourse.Errorf(bourse.CodeInvalid, "a call of %s: %w", bourse.Quoted(m.URI), err)
	}
	req := newRequest(m.Method, u)
	setBytes(req, m.Body)
	resp, err := call(ctx, to, req)
	if err != nil {
		return Answer{}, err
	}
	defer resp.Body.Close()
	var buf bytes.Buffer
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, MaxAnswer+1))
	if err != nil {
		return Answer{}, Lost(ctx, to, err)
	}
	if n > MaxAnswer {
		return Answer{}, tooLong(to, MaxAnswer)
	}
	return Answer{Status: resp.StatusCode, Body: buf.Bytes()}, nil
}
