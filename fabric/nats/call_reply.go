package nats

import (
	"bytes"
	"errors"
	"net/http"
	"net/url"
	"runtime/debug"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// held is a reply that is kept until it is complete. What is before is not of
// its body.
type held struct {
	header http.Header
	status int
	body   bytes.Buffer
	before int
}

// Header implements http.ResponseWriter.
func (h *held) Header() http.Header {
	if h.header == nil {
		h.header = http.Header{}
	}
	return h.header
}

// WriteHeader implements http.ResponseWriter.
func (h *held) WriteHeader(status int) {
	if h.status == 0 {
		h.status = status
	}
}

var errTooLong = errors.New("the reply is too long for a message")

// Write implements http.ResponseWriter.
func (h *held) Write(p []byte) (int, error) {
	h.WriteHeader(http.StatusOK)
	if h.body.Len()-h.before+len(p) > fabric.MaxAnswer {
		return 0, errTooLong
	}
	return h.body.Write(p)
}

// SetReadDeadline is that of an http.ResponseController: what there is of the
// request is there.
func (h *held) SetReadDeadline(time.Time) error { return nil }

const maxHeld = 64 << 10 // bytes of a reply whose memory is kept

// holds are replies to calls, each with room for a part's header before its
// body.
var holds = sync.Pool{New: func() any { return new(held) }}

func hold() *held {
	h := holds.Get().(*held)
	var room [partHeader]byte
	h.body.Write(room[:])
	h.before = partHeader
	return h
}

func (h *held) release() {
	if h.body.Cap() > maxHeld {
		return
	}
	clear(h.header)
	h.status = 0
	h.body.Reset()
	holds.Put(h)
}

// handle has the handler answer a call into h. It tells whether the reply is
// whole: a handler that panics breaks it off.
func (l *Link) handle(d *desk, c *served, h *held) (whole bool) {
	if c.to != d.id {
		h.WriteHeader(statusAnother)
		return true
	}
	u, err := url.ParseRequestURI(c.uri)
	if err != nil {
		fabric.WriteFailure(h, bourse.Errorf(bourse.CodeInvalid, "a call of %s", bourse.Quoted(c.uri)))
		return true
	}
	r := &http.Request{
		Method: c.method, URL: u, RequestURI: c.uri, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, ContentLength: int64(len(c.body)),
	}
	if len(c.body) > 0 {
		r.Body = body{bytes.NewReader(c.body)}
	}
	defer func() {
		switch v := recover(); v {
		case nil:
		case http.ErrAbortHandler:
			whole = false
		default:
			l.config.Log.Error("a call's handler panicked", "uri", c.uri, "panic", v, "stack", string(debug.Stack()))
			whole = false
		}
	}()
	d.handler.ServeHTTP(h, r.WithContext(c.ctx))
	return true
}

// body is a request's, whole.
type body struct{ *bytes.Reader }

// Close implements io.Closer.
func (body) Close() error { return nil }

// reply sends what is held, in as many parts as it needs.
func (l *Link) reply(to string, h *held) {
	if h.status == 0 {
		h.status = http.StatusOK
	}
	b := h.body.Bytes()
	size, most := len(b)-partHeader, l.partMost()
	for offset := 0; offset == 0 || offset < size; offset += most {
		n := min(most, size-offset)
		// The header overwrites the end of the part before, which has left.
		one := b[offset : partHeader+offset+n]
		putPart(one, h.status, uint32(size), uint32(offset))
		if l.sent(l.nats.Publish(to, one)) != nil {
			l.breakCall(to)
			return
		}
	}
}

// breakCall tells a caller that there will be no answer. Where that cannot be
// said now, a roll tells it.
func (l *Link) breakCall(to string) { l.post(letter{to: to, data: []byte{byte(callBroken)}}) }

// partMost is the most that one part of an answer carries.
func (l *Link) partMost() int {
	if most := int(l.nats.MaxPayload()) - partHeader; most > 0 {
		return min(most, maxChunk)
	}
	return maxChunk // there is no NATS now
}
