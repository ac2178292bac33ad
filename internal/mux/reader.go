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
	// step is how much of a frame's content is allocated before it has arrived.
	step = 64 << 10
)

// reader reads frames. It is used by one goroutine at a time.
type reader struct {
	conn   net.Conn
	src    io.Reader // conn, and before it what was read of it already
	limits *Limits
	rest   time.Duration // how long the rest of a frame may take to arrive; 0: no limit
	buf    *bufio.Reader
	active atomic.Bool // something has arrived since this was reset

	body  bool // a frame's content is being read
	fresh bool // the frame has no deadline yet
	late  bool // the connection has one
}

func newReader(conn net.Conn, src io.Reader, l *Limits, rest time.Duration) *reader {
	r := &reader{conn: conn, src: src, limits: l, rest: rest}
	r.buf = bufio.NewReaderSize(r, max(readAhead, l.line()))
	return r
}

// Read reads from the connection. It is for buf.
func (r *reader) Read(p []byte) (int, error) {
	switch inside := r.body || r.buf.Buffered() > 0; {
	case r.rest == 0:
	case inside && r.fresh:
		r.fresh, r.late = false, true
		_ = r.conn.SetReadDeadline(time.Now().Add(r.rest)) // of a connection that is closed it does not matter
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

// next reads the line of a frame; its slices are valid until the next call of
// any method. The error is io.EOF when the stream ends before it.
func (r *reader) next() (frame, error) {
	r.fresh = true
	for seen := 0; ; {
		have, _ := r.buf.Peek(r.buf.Buffered())
		if i := bytes.IndexByte(have[seen:], '\n'); i >= 0 && seen+i < r.limits.line() {
			_, _ = r.buf.Discard(seen + i + 1) // it is there
			return parse(have[:seen+i], r.limits)
		} else if i >= 0 || len(have) >= r.limits.line() {
			return frame{}, fmt.Errorf("malformed frame: a line of more than %d bytes", r.limits.line())
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

// take reads n bytes, which are the caller's.
func (r *reader) take(n int) ([]byte, error) {
	r.body = true
	b := make([]byte, min(n, step))
	_, err := io.ReadFull(r.buf, b)
	for err == nil && len(b) < n {
		have := len(b)
		b = append(b, make([]byte, min(have, n-have))...) // twice as much each time
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
