package warm

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// reader reads lines and bytes by turns.
type reader struct {
	src  io.Reader
	buf  []byte // buf[r:w] was read and not yet taken
	r, w int

	// hurry, when set, is called with true when the rest of a frame is waited for,
	// and with false when it has come.
	hurry func(bool)
	late  bool // hurry(true) was called last
}

const readerSize = 16 << 10

func newReader(src io.Reader) *reader { return &reader{src: src, buf: make([]byte, readerSize)} }

// line reads a line, and returns it without its newline; it is valid until the
// next call. The error is io.EOF when the stream ends before it.
func (r *reader) line() ([]byte, error) {
	r.rest(false)
	seen := 0
	for {
		if i := bytes.IndexByte(r.buf[r.r+seen:r.w], '\n'); i >= 0 {
			line := r.buf[r.r : r.r+seen+i]
			r.r += seen + i + 1
			if len(line) >= maxLine {
				return nil, errLongLine
			}
			return line, nil
		}
		if seen = r.w - r.r; seen >= maxLine {
			return nil, errLongLine
		}
		if seen > 0 {
			r.rest(true)
		}
		if err := r.fill(); err != nil {
			if errors.Is(err, io.EOF) && seen > 0 {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
}

var errLongLine = fmt.Errorf("malformed frame: a line of more than %d bytes", maxLine)

// rest calls hurry if waited is new: whether the rest of a frame is waited for from now on.
func (r *reader) rest(waited bool) {
	if waited != r.late && r.hurry != nil {
		r.late = waited
		r.hurry(waited)
	}
}

// fill reads more, behind what there is.
func (r *reader) fill() error {
	if r.r > 0 {
		r.w = copy(r.buf, r.buf[r.r:r.w])
		r.r = 0
	}
	n, err := r.src.Read(r.buf[r.w:])
	r.w += n
	if n > 0 {
		return nil
	}
	return err
}

// body takes as many bytes as fit p.
func (r *reader) body(p []byte) error {
	n := copy(p, r.buf[r.r:r.w])
	r.r += n
	if n == len(p) {
		return nil
	}
	r.rest(true)
	_, err := io.ReadFull(r.src, p[n:])
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// skip discards n bytes.
func (r *reader) skip(n int) error {
	k := min(n, r.w-r.r)
	r.r += k
	if k == n {
		return nil
	}
	r.rest(true)
	if _, err := io.CopyN(io.Discard, r.src, int64(n-k)); err != nil {
		return io.ErrUnexpectedEOF
	}
	return nil
}
