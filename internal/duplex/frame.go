package duplex

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Kind is what a frame holds.
type Kind byte

// The kinds of frames. Their numbers are on the wire.
const (
	Start    Kind = 1 // of the caller, first: a Command as JSON
	Stdin    Kind = 2 // bytes of the command's input
	StdinEnd Kind = 3 // there is no more input
	Resize   Kind = 4 // a Size: rows and columns, two bytes each, the higher first
	Stdout   Kind = 5 // bytes of the command's output
	Stderr   Kind = 6 // the same
	Exit     Kind = 7 // a bourse.Exit as JSON; the last frame
	Failed   Kind = 8 // a Failure as JSON; the last frame
	Ping     Kind = 9 // a sign of life
)

// A frame is its kind, the length of what it holds (four bytes, the highest
// first), and that.
const (
	header = 5
	// MaxFrame bounds what one frame holds, in bytes.
	MaxFrame = 64 << 10
)

// ErrFrame is the error of bytes that are no frames.
var ErrFrame = errors.New("not a frame")

// Reader takes frames off a stream of bytes. It is for one goroutine.
type Reader struct {
	from *bufio.Reader
	held []byte
}

// NewReader makes a reader of frames.
func NewReader(r io.Reader) *Reader { return &Reader{from: bufio.NewReader(r)} }

// Next returns the next frame; what it holds stays valid until the call after.
// The error is io.EOF where the stream ends between two frames.
func (r *Reader) Next() (Kind, []byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return 0, nil, err
	}
	kind, n := Kind(head[0]), binary.BigEndian.Uint32(head[1:])
	if kind < Start || kind > Ping || n > MaxFrame {
		return 0, nil, fmt.Errorf("%w: kind %d, %d bytes", ErrFrame, kind, n)
	}
	r.held = slices.Grow(r.held[:0], int(n))[:n]
	if _, err := io.ReadFull(r.from, r.held); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, r.held, nil
}

// Writer puts frames onto a stream of bytes, each with one call of Write. It is
// safe for concurrent use.
type Writer struct {
	to    io.Writer
	flush func() error

	mu  sync.Mutex
	buf []byte // one frame
}

// NewWriter makes a writer of frames; flush, if any, is called after each.
func NewWriter(w io.Writer, flush func() error) *Writer { return &Writer{to: w, flush: flush} }

// Write writes data as frames of one kind: as many as it needs, and one when
// it is empty. It returns how much of data was written.
func (w *Writer) Write(kind Kind, data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := 0
	for {
		part := data[done:min(done+MaxFrame, len(data))]
		if err := w.one(kind, part); err != nil {
			return done, err
		}
		if done += len(part); done == len(data) {
			return done, nil
		}
	}
}

func (w *Writer) one(kind Kind, data []byte) error {
	w.buf = append(w.buf[:0], byte(kind))
	w.buf = binary.BigEndian.AppendUint32(w.buf, uint32(len(data)))
	w.buf = append(w.buf, data...)
	if _, err := w.to.Write(w.buf); err != nil {
		return err
	}
	if w.flush == nil {
		return nil
	}
	return w.flush()
}

// As is an io.Writer of frames of one kind. Nothing is written for no bytes.
func (w *Writer) As(kind Kind) io.Writer { return writerOf{w, kind} }

type writerOf struct {
	frames *Writer
	kind   Kind
}

func (w writerOf) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return w.frames.Write(w.kind, p)
}
