package mux

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"time"
)

const (
	readAhead = 16 << 10
	// step is the maximum number of bytes that are allocated for a frame's content before any of it
	// has arrived.
	step = 64 << 10
)

// reader reads frames. It is not safe for concurrent use.
type reader struct {
	conn   net.Conn
	src    io.Reader // conn, preceded by data that was already read from it
	limits *Limits
	rest   time.Duration // maximum time for the rest of a frame to arrive; 0 means no limit
	buf    *bufio.Reader
	active atomic.Bool // whether data has arrived since the last reset

	body  bool // whether a frame's content is being read
	fresh bool // whether no deadline has been set for the frame yet
	late  bool // whether the connection has a deadline
}

func newReader(conn net.Conn, src io.Reader, l *Limits, rest time.Duration) *reader {
	r := &reader{conn: conn, src: src, limits: l, rest: rest}
	r.buf = bufio.NewReaderSize(r, max(readAhead, l.line()))
	return r
}

// Read implements [io.Reader] for buf.
func (r *reader) Read(p []byte) (int, error) {
	switch inside := r.body || r.buf.Buffered() > 0; {
	case r.rest == 0:
	case inside && r.fresh:
		r.fresh, r.late = false, true
		_ = r.conn.SetReadDeadline(time.Now().Add(r.rest)) // fails only if the connection is closed
	case !inside && r.late:
		r.late = false
		_ = r.conn.SetReadDeadline(time.Time{})
	}
	n, err := r.src.Read(p)
	if n > 0 {
		r.active.Store(true)
	}
	return n, err
}

// next reads the next frame's line, but not the content that may follow it. The slices in the
// returned frame are valid until the next call to any of r's methods. The error is io.EOF if the
// stream ends before the line begins.
func (r *reader) next() (frame, error) {
	r.fresh = true
	for seen := 0; ; {
		have, _ := r.buf.Peek(r.buf.Buffered())
		if i := bytes.IndexByte(have[seen:], '\n'); i >= 0 && seen+i < r.limits.line() {
			_, _ = r.buf.Discard(seen + i + 1) // cannot fail, because these bytes are buffered
			return parse(have[:seen+i], r.limits)
		} else if i >= 0 || len(have) >= r.limits.line() {
			return frame{}, fmt.Errorf("malformed frame: a line has more than %d bytes", r.limits.line())
		}
		seen = len(have)
		if _, err := r.buf.Peek(seen + 1); err != nil {
			if errors.Is(err, io.EOF) && seen > 0 {
				err = io.ErrUnexpectedEOF
			}
			return frame{}, err
		}
	}
}

// take reads n bytes into a new slice.
func (r *reader) take(n int) ([]byte, error) {
	r.body = true
	b := make([]byte, min(n, step))
	_, err := io.ReadFull(r.buf, b)
	for err == nil && len(b) < n {
		have := len(b)
		b = append(b, make([]byte, min(have, n-have))...) // double the size
		_, err = io.ReadFull(r.buf, b[have:])
	}
	r.body = false
	return b, unexpected(err)
}

// skip discards n bytes.
func (r *reader) skip(n int) error {
	r.body = true
	_, err := r.buf.Discard(n)
	r.body = false
	return unexpected(err)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
