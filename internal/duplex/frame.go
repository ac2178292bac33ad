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

// Kind is the type of a frame.
type Kind byte

// The kinds of frames, with their numbers on the wire.
const (
	Start    Kind = 1 // the caller's first frame: a Command as JSON
	Stdin    Kind = 2 // the command's input
	StdinEnd Kind = 3 // end of the input
	Resize   Kind = 4 // a Size: rows and columns, two bytes each, big-endian
	Stdout   Kind = 5 // the command's standard output
	Stderr   Kind = 6 // the command's standard error
	Exit     Kind = 7 // a bourse.Exit as JSON; the last frame
	Failed   Kind = 8 // a Failure as JSON; the last frame
	Ping     Kind = 9 // a keepalive
)

// A frame consists of its kind, the length of its payload (four bytes, big-endian), and the
// payload.
const (
	header = 5
	// MaxFrame is the maximum size of a frame's payload, in bytes.
	MaxFrame = 64 << 10
)

// ErrFrame is the error for malformed frames.
var ErrFrame = errors.New("malformed frame")

// Reader reads frames. It is not safe for concurrent use.
type Reader struct {
	from    *bufio.Reader
	payload []byte
}

// NewReader returns a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{from: bufio.NewReader(r)} }

// Next returns the next frame. The payload is valid until the next call. The error is
// io.EOF if the stream ends after a complete frame.
func (r *Reader) Next() (Kind, []byte, error) {
	var head [header]byte
	if _, err := io.ReadFull(r.from, head[:]); err != nil {
		return 0, nil, err
	}
	kind, n := Kind(head[0]), binary.BigEndian.Uint32(head[1:])
	if kind < Start || kind > Ping || n > MaxFrame {
		return 0, nil, fmt.Errorf("%w: kind %d, %d bytes", ErrFrame, kind, n)
	}
	r.payload = slices.Grow(r.payload[:0], int(n))[:n]
	if _, err := io.ReadFull(r.from, r.payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return kind, r.payload, nil
}

// Writer writes frames, each with a single call to Write. It is safe for concurrent use.
type Writer struct {
	to    io.Writer
	flush func() error

	mu  sync.Mutex
	buf []byte // one frame
}

// NewWriter returns a Writer. If flush is not nil, it is called after each frame.
func NewWriter(w io.Writer, flush func() error) *Writer { return &Writer{to: w, flush: flush} }

// Write writes data as one or more frames of the given kind. Empty data becomes one empty frame. It
// returns the number of bytes of data that were written.
func (w *Writer) Write(kind Kind, data []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	done := 0
	for {
		part := data[done:min(done+MaxFrame, len(data))]
		if err := w.writeFrame(kind, part); err != nil {
			return done, err
		}
		if done += len(part); done == len(data) {
			return done, nil
		}
	}
}

func (w *Writer) writeFrame(kind Kind, data []byte) error {
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

// As returns an [io.Writer] that writes frames of the given kind. It ignores empty writes.
func (w *Writer) As(kind Kind) io.Writer { return kindWriter{w, kind} }

type kindWriter struct {
	frames *Writer
	kind   Kind
}

func (w kindWriter) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	return w.frames.Write(w.kind, p)
}
