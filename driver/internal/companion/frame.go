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

// MaxFrame bounds a frame. Linux gives a program at most 2 MiB of arguments
// and environment with usual limits; base64 makes that 2.7 MiB.
const MaxFrame = 4 << 20

// ErrFrameSize says that a frame is longer than MaxFrame.
var ErrFrameSize = errors.New("frame too large")

// Error is an error with its code, in a frame.
type Error struct {
	Code    bourse.Code `json:"code"`
	Message string      `json:"message"`
}

// ErrorOf returns what to put into a frame for err, nil for none.
func ErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	return &Error{Code: bourse.CodeOf(err), Message: err.Error()}
}

// Err returns the error that the other side had.
func (e *Error) Err() error {
	if e == nil {
		return nil
	}
	return &bourse.Error{Code: e.Code, Message: e.Message}
}

// frames pools the buffers that frames are written from.
var frames = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func giveBack(b *bytes.Buffer) {
	if b.Cap() <= 1<<16 { // the rare large one is for the garbage collector
		frames.Put(b)
	}
}

// WriteFrame writes v as one frame with one call of Write: its length in four
// bytes, then JSON.
func WriteFrame(w io.Writer, v any) error {
	b := frames.Get().(*bytes.Buffer)
	defer giveBack(b)
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

// ReadBody reads the rest of a frame after its length. Memory grows with what
// has come, not with what the length promises.
func ReadBody(r io.Reader, length uint32, v any) error {
	if length > MaxFrame {
		return fmt.Errorf("%w: %d bytes", ErrFrameSize, length)
	}
	b := frames.Get().(*bytes.Buffer)
	defer giveBack(b)
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
