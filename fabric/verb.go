package fabric

import (
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/url"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/trace"
)

// Spec describes a verb independently of its types.
type Spec struct {
	Name   string        // name of the verb, such as "machine/start"
	Method string        // GET for read-only verbs
	Roles  []bourse.Role // roles of the servers that may use the verb

	// Request and Reply return new zero values of the verb's types. For Lines, Reply
	// returns a value for one line; for Pipe, an empty struct.
	Request, Reply func() any

	pipe bool // whether the body is a stream; the verb's request is then encoded in the URL
}

// Path returns the path of the verb's requests.
func (s *Spec) Path() string { return "/worker/" + s.Name }

// pattern returns the mux pattern of the verb's requests.
func (s *Spec) pattern() string { return s.Method + " " + s.Path() }

// request returns the HTTP request that carries a verb's encoded request. The encoded request is usually the body. For
// a GET, which has no body, and for a Pipe, whose body is a stream, it is in the URL instead. The Fabric sets the
// address.
func (s *Spec) request(encoded []byte) *http.Request {
	req := newRequest(s.Method, &url.URL{Path: s.Path()})
	if s.inURL() {
		req.URL.RawQuery = base64.RawURLEncoding.EncodeToString(encoded)
	} else {
		setBytes(req, encoded)
	}
	return req
}

func newRequest(method string, u *url.URL) *http.Request {
	return &http.Request{
		Method: method, URL: u, Header: http.Header{}, Body: http.NoBody,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}
}

func (s *Spec) inURL() bool { return s.pipe || s.Method == http.MethodGet }

// open sends a request to one worker and returns the reply, whose body has not been read. If the worker reports an
// error, open returns that error. If stream is not nil, it is sent as the request's body while the reply is received.
func (s *Spec) open(ctx context.Context, f Fabric, to bourse.Member, encoded []byte, stream io.ReadCloser) (*http.Response, error) {
	req := s.request(encoded)
	if stream != nil {
		req.Body, req.ContentLength = stream, -1
	}
	resp, err := f.Call(ctx, to, req)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode > 299 {
		defer resp.Body.Close()
		return nil, readFailure(ctx, to, resp)
	}
	return resp, nil
}

// read decodes a request from the body or the URL. Errors: invalid.
func (s *Spec) read(w http.ResponseWriter, r *http.Request, into any) error {
	if !s.inURL() {
		return ReadBody(w, r, into)
	}
	text, err := base64.RawURLEncoding.DecodeString(r.URL.RawQuery)
	if err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "decode the request: %w", err)
	}
	return decode(text, into)
}

// Verb is an operation of a worker that has one request and one reply.
type Verb[Req, Rep any] struct{ Spec }

// Call sends a request to one worker. Errors: those of [Fabric], and those that the worker reports, with their code and
// message unchanged. Verbs that change something are sent with Fabric.Send. Read-only verbs may have long replies, so
// they are sent with Fabric.Call.
func (v *Verb[Req, Rep]) Call(ctx context.Context, f Fabric, to bourse.Member, req Req) (Rep, error) {
	var reply Rep
	if err := v.call(ctx, f, to, req, &reply); err != nil {
		var none Rep // returned with errors, so that callers never see a rejected reply
		return none, err
	}
	if placed, ok := f.(VerifyingFabric); ok {
		placed.clearUnverified(&to, &reply)
	}
	return reply, nil
}

func (v *Verb[Req, Rep]) call(ctx context.Context, f Fabric, to bourse.Member, req Req, reply *Rep) error {
	body, err := encodeBody(&req)
	if err != nil {
		return err
	}
	if v.Method == http.MethodGet {
		resp, err := v.open(ctx, f, to, body, nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		return readReply(ctx, to, resp, reply, maxReply)
	}
	answer, err := f.Send(ctx, to, &Message{Method: v.Method, URI: v.Path() + trace.Query(ctx), Body: body})
	switch {
	case err != nil:
		return err
	case answer.Status > 299:
		return failureIn(to, answer.Status, answer.Body)
	}
	return decodeReply(to, answer.Body, reply)
}

// Handle registers a handler for the verb. The do function performs the operation and returns the reply.
func (v *Verb[Req, Rep]) Handle(mux *http.ServeMux, do func(context.Context, Req) (Rep, error)) {
	v.HandleFrom(mux, func(r *http.Request, req Req) (Rep, error) { return do(r.Context(), req) })
}

// HandleFrom is like Handle, for operations that need to know the sender of a request.
func (v *Verb[Req, Rep]) HandleFrom(mux *http.ServeMux, do func(*http.Request, Req) (Rep, error)) {
	mux.HandleFunc(v.pattern(), func(w http.ResponseWriter, r *http.Request) {
		var req Req
		err := v.read(w, r, &req)
		var reply Rep
		if err == nil {
			reply, err = do(r, req)
		}
		if err != nil {
			WriteFailure(w, err)
			return
		}
		WriteBody(w, reply)
	})
}

// Lines is an operation whose reply is a stream of JSON lines.
type Lines[Req, Line any] struct{ Spec }

// Call sends a request to one worker and calls the given function for each line of the reply. It stops when the reply
// or ctx is done, or when the function returns an error, which Call then returns. It also returns an error if the
// stream breaks.
func (v *Lines[Req, Line]) Call(ctx context.Context, f Fabric, to bourse.Member, req Req, line func(Line) error) error {
	body, err := encodeBody(&req)
	if err != nil {
		return err
	}
	resp, err := v.open(ctx, f, to, body, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	return readLines(ctx, to, resp.Body, line)
}

// Handle registers a handler for the verb. The do function writes the lines. If it returns an error before the first
// line, the error becomes the reply; a later error aborts the connection.
func (v *Lines[Req, Line]) Handle(mux *http.ServeMux, do func(context.Context, Req, *codec.Writer) error) {
	mux.HandleFunc(v.pattern(), func(w http.ResponseWriter, r *http.Request) {
		var req Req
		if err := v.read(w, r, &req); err != nil {
			WriteFailure(w, err)
			return
		}
		out := codec.NewWriter(w)
		err := do(r.Context(), req, out)
		switch {
		case err == nil:
			out.Begin()
		case !out.Begun():
			WriteFailure(w, err)
		default:
			panic(http.ErrAbortHandler) // part of the reply was sent, so the caller must notice that it is incomplete
		}
	})
}

// Pipe is an operation whose reply is a stream of bytes. The request may have a body, which
// is sent while the reply is received.
type Pipe[Req any] struct{ Spec }

// Open sends a request to one worker and returns the reply as soon as it begins. The caller must
// close the reply. The request's body may be nil; otherwise it is closed when the reply is closed,
// when ctx is done, or when Open fails.
func (v *Pipe[Req]) Open(ctx context.Context, f Fabric, to bourse.Member, req Req, body io.ReadCloser) (io.ReadCloser, error) {
	request, err := encodeBody(&req)
	var resp *http.Response
	if err == nil {
		resp, err = v.open(ctx, f, to, request, body) //nolint:bodyclose // the caller closes the body
	}
	if err != nil {
		if body != nil {
			_ = body.Close() // the fabric closes the body only after its own errors
		}
		return nil, err
	}
	r := &received{ReadCloser: resp.Body, lost: func(err error) error { return Lost(ctx, to, err) }}
	if body != nil {
		r.body = body
		r.stop = context.AfterFunc(ctx, func() { _ = r.end() }) // some transports do not check ctx while they read a body
	}
	return r, nil
}

// Handle registers a handler for the verb. The serve function writes the reply.
func (v *Pipe[Req]) Handle(mux *http.ServeMux, serve func(http.ResponseWriter, *http.Request, Req)) {
	mux.HandleFunc(v.pattern(), func(w http.ResponseWriter, r *http.Request) {
		var req Req
		if err := v.read(w, r, &req); err != nil {
			WriteFailure(w, err)
			return
		}
		serve(w, r, req)
	})
}

// received is a Pipe's reply. If the stream breaks, its Read method returns the error of [Lost].
type received struct {
	io.ReadCloser
	lost func(error) error
	body io.Closer   // the request's body; nil once it is closed
	stop func() bool // prevents ctx from closing body
}

// Close ends the call. It also closes the request's body, which a fabric may still be reading.
func (r *received) Close() error {
	if r.stop != nil {
		r.stop()
	}
	return r.end()
}

func (r *received) end() error {
	if r.body != nil {
		_ = r.body.Close()
	}
	return r.ReadCloser.Close()
}

// Read implements io.Reader. Any error except io.EOF means that the answer was lost.
func (r *received) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.lost(err)
	}
	return n, err
}
