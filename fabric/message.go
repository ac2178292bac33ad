package fabric

import (
	"bytes"
	"context"
	"io"
	"net/url"

	"github.com/bourse-dev/bourse"
)

// Message is a request whose body is completely in memory.
type Message struct {
	Method string
	URI    string // path and query, escaped
	Body   []byte // nil if there is no body; the sender may reuse the slice after Send returns
}

// Answer is a reply whose body is completely in memory.
type Answer struct {
	Status int
	Body   []byte // owned by the receiver
}

// MaxAnswer is the maximum size of an Answer's body, in bytes.
const MaxAnswer = maxReply

// Send is the signature of [Fabric].Send.
type Send func(ctx context.Context, to bourse.Member, m *Message) (Answer, error)

// SendByCall implements Send with a separate request.
func SendByCall(ctx context.Context, call Call, to bourse.Member, m *Message) (Answer, error) {
	u, err := url.ParseRequestURI(m.URI)
	if err != nil {
		return Answer{}, bourse.Errorf(bourse.CodeInvalid, "invalid URI %s: %w", bourse.Quoted(m.URI), err)
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
