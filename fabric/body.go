package fabric

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/internal/throttle"
)

// MaxBody is the maximum size of a request body, in bytes.
const MaxBody = 4 << 20

// maxReply is the maximum size of a reply that is not a stream, in bytes. Even a list of a large worker's machines is
// much smaller. A longer reply results in an error; replies are never truncated.
const maxReply = 64 << 20

// ErrOverflow means that a worker's reply exceeds the maximum size.
var ErrOverflow = errors.New("the reply is too long")

// buffers is a pool of buffers for bodies. Large buffers are not reused.
var buffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

const maxPooled = 64 << 10

func putBuffer(b *bytes.Buffer) {
	if b.Cap() <= maxPooled {
		b.Reset()
		buffers.Put(b)
	}
}

// ReadBody decodes a request's body into v. The body must consist of a single value of at most
// [MaxBody] bytes. ReadBody returns CodeInvalid if the body is invalid or exceeds the nesting limit
// of package codec.
func ReadBody(w http.ResponseWriter, r *http.Request, v any) error {
	buf := buffers.Get().(*bytes.Buffer)
	defer putBuffer(buf)
	if _, err := buf.ReadFrom(http.MaxBytesReader(w, r.Body, MaxBody)); err != nil {
		return throttle.BodyError(err)
	}
	return throttle.DecodeBody(r, buf.Len(), func() error { return decode(buf.Bytes(), v) })
}

func decode(body []byte, v any) error {
	if err := codec.Unmarshal(body, v); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "read the body: %w", err)
	}
	return nil
}

// WriteBody responds with v and status 200. If the value cannot be encoded, WriteBody
// responds with an internal error. If the caller has disconnected, WriteBody does
// nothing.
func WriteBody(w http.ResponseWriter, v any) { writeBody(w, http.StatusOK, v) }

func writeBody(w http.ResponseWriter, status int, v any) {
	buf := buffers.Get().(*bytes.Buffer)
	defer putBuffer(buf)
	if err := codec.Write(buf, v); err != nil {
		WriteFailure(w, bourse.Errorf(bourse.CodeInternal, "encode the reply: %w", err))
		return
	}
	if buf.Len() > maxReply {
		WriteFailure(w, bourse.Errorf(bourse.CodeInvalid, "%w: %d bytes, the maximum is %d; request fewer items at a time", ErrOverflow, buf.Len(), maxReply))
		return
	}
	release, err := throttle.ReserveReply(w, buf.Len())
	if err != nil {
		WriteFailure(w, err)
		return
	}
	defer release()
	w.Header().Set("Content-Type", contentType)
	w.Header().Set("Content-Length", strconv.Itoa(buf.Len()))
	w.WriteHeader(status)
	throttle.WriteReply(w, buf.Bytes())
}

const contentType = "application/cbor"

// readReply decodes a worker's reply into v. most is the maximum size of the reply. If the reply is incomplete,
// readReply returns an error from [Lost]. If the reply is invalid or too long, the error has CodeInternal. In all of
// these cases, the request's outcome is unknown, because a worker acts before it replies.
func readReply(ctx context.Context, from bourse.Member, resp *http.Response, v any, most int64) error {
	buf := buffers.Get().(*bytes.Buffer)
	defer putBuffer(buf)
	n, err := buf.ReadFrom(io.LimitReader(resp.Body, most+1))
	if err != nil {
		return Lost(ctx, from, err)
	}
	if n > most {
		return tooLong(from, most)
	}
	return decodeReply(from, buf.Bytes(), v)
}

func tooLong(from bourse.Member, limit int64) error {
	return bourse.Errorf(bourse.CodeInternal, "worker %s answered with more than %d bytes: %w", from.ID, limit, ErrOverflow)
}

func decodeReply(from bourse.Member, body []byte, v any) error {
	if err := codec.Unmarshal(body, v); err != nil {
		return bourse.Errorf(bourse.CodeInternal, "worker %s sent an invalid reply: %w", from.ID, err)
	}
	return checkOwner(&from, v)
}

// encodeBody encodes a request. It returns an error if the request is larger than [MaxBody].
func encodeBody(v any) ([]byte, error) {
	body, err := codec.Marshal(v)
	if err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "encode the request: %w", err)
	}
	if len(body) > MaxBody {
		return nil, bourse.Errorf(bourse.CodeInvalid, "the request is %d bytes long; the maximum is %d", len(body), int64(MaxBody))
	}
	return body, nil
}

// setBytes sets req's body and GetBody, so that a Fabric can send the request again if no byte of it has been written.
func setBytes(req *http.Request, body []byte) {
	req.Header.Set("Content-Type", contentType)
	req.ContentLength = int64(len(body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	req.Body, _ = req.GetBody()
}
