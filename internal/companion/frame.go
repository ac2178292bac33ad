package companion

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/bourse-dev/bourse"
)

// MaxFrame is the maximum size of a frame in bytes. A frame must have room for a program's
// arguments and environment, which Linux limits to 2 MiB by default. In base64, 2 MiB take 2.7 MiB.
const MaxFrame = 4 << 20

// ErrFrameSize is the error for a frame that is longer than MaxFrame.
var ErrFrameSize = errors.New("frame too large")

// Error represents an error and its code in a frame.
type Error struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

// ErrorOf converts err to an Error. It returns nil if err is nil.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	return &Error{Code: bourse.CodeOf(err), Message: err.Error()}
}

// Err converts e back to an error. It returns nil if e is nil.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	return &bourse.Error{Code: e.Code, Message: e.Message}
}

// frames pools the buffers for reading and writing frames.
var frames = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func putFrame(b *bytes.Buffer) {
	if b.Cap() <= 1<<16 { // large buffers are rare and are left to the garbage collector
		frames.Put(b)
	}
}

// WriteFrame writes v as a frame, with a single call to Write: the length in four bytes, then JSON.
func WriteFrame(w io.Writer, v any) error {
	b := frames.Get().(*bytes.Buffer)
	defer putFrame(b)
	b.Reset()
	b.Write(make([]byte, 4))
	if err := json.NewEncoder(b).Encode(v); err != nil {
		return fmt.Errorf("encode frame: %w", err)
	}
	if b.Len()-4 > MaxFrame {
		return ErrFrameSize
	}
	binary.BigEndian.PutUint32(b.Bytes(), uint32(b.Len()-4))
	_, err := w.Write(b.Bytes())
	return err
}

// ReadFrame reads one frame into v.
func ReadFrame(r *bufio.Reader, v any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return err
	}
	return ReadBody(r, binary.BigEndian.Uint32(head[:]), v)
}

// ReadBody reads the rest of a frame after its length. It allocates memory as data arrives,
// instead of allocating the announced length at once.
func ReadBody(r io.Reader, length uint32, v any) error {
	if length > MaxFrame {
		return fmt.Errorf("%w: %d bytes", ErrFrameSize, length)
	}
	b := frames.Get().(*bytes.Buffer)
	defer putFrame(b)
	b.Reset()
	switch n, err := io.CopyN(b, r, int64(length)); {
	case errors.Is(err, io.EOF) && n < int64(length):
		return io.ErrUnexpectedEOF
	case err != nil:
		return err
	}
	if err := json.Unmarshal(b.Bytes(), v); err != nil {
		return fmt.Errorf("decode frame: %w", err)
	}
	return nil
}
