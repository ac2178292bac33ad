package direct

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/bourse-dev/bourse/fabric"
)

// frameKind is the kind of a frame of calls.
type frameKind byte

// The kinds of frames. Their numbers are on the wire.
const (
	frameRequest frameKind = 1 // of a caller: a fabric.Message
	frameLeave   frameKind = 2 // of a caller: the answer is no longer waited for
	frameAnswer  frameKind = 3 // of a worker: the status, two bytes, and the body
	frameBroken  frameKind = 4 // of a worker: there will be no answer
	framePing    frameKind = 5 // of a caller: send a sign of life
	framePong    frameKind = 6 // of a worker
)

// A frame is the length of what it holds (four bytes, the highest first), its
// kind, the number of its call (eight bytes) or 0, and what it holds.
const (
	frameHeader = 4 + 1 + 8
	statusSize  = 2
	// maxRequest bounds what a request holds. One that is larger would hold up
	// the others behind it: it has a connection for itself.
	maxRequest = 256 << 10
)

type frame struct {
	kind   frameKind
	number uint64
	size   int // of what it holds
}

// put writes a frame's header into b, which is long enough.
func (f frame) put(b []byte) {
	binary.BigEndian.PutUint32(b, uint32(f.size))
	b[4] = byte(f.kind)
	binary.BigEndian.PutUint64(b[5:], f.number)
}

// append writes a frame's header onto b.
func (f frame) append(b []byte) []byte {
	var head [frameHeader]byte
	f.put(head[:])
	return append(b, head[:]...)
}

// parseFrame reads a frame's header.
func parseFrame(b []byte) (frame, error) {
	f := frame{kind: frameKind(b[4]), number: binary.BigEndian.Uint64(b[5:])}
	size := binary.BigEndian.Uint32(b)
	least, most := uint32(0), uint32(0)
	switch f.kind {
	case frameRequest:
		most = maxRequest
	case frameAnswer:
		least, most = statusSize, statusSize+fabric.MaxAnswer
	case frameLeave, frameBroken, framePing, framePong:
	default:
		return f, fmt.Errorf("a frame of kind %d", f.kind)
	}
	if size < least || size > most {
		return f, fmt.Errorf("a frame of kind %d with %d bytes", f.kind, size)
	}
	f.size = int(size)
	return f, nil
}

// nextFrame reads the header of the next frame.
func nextFrame(r *bufio.Reader) (frame, error) {
	head, err := r.Peek(frameHeader)
	if err != nil {
		return frame{}, err
	}
	f, err := parseFrame(head)
	if err == nil {
		_, err = r.Discard(frameHeader)
	}
	return f, err
}

// step is how much of a frame's content is allocated before it has arrived.
const step = 64 << 10

// take reads n bytes, which are the caller's.
func take(r *bufio.Reader, n int) ([]byte, error) {
	b := make([]byte, min(n, step))
	_, err := io.ReadFull(r, b)
	for err == nil && len(b) < n {
		have := len(b)
		more := min(have, n-have) // twice as much each time
		b = append(b, make([]byte, more)...)
		_, err = io.ReadFull(r, b[have:])
	}
	return b, err
}

// sendable reports whether a message is small enough for a frame.
func sendable(m *fabric.Message) bool {
	return len(m.Method)+len(m.URI)+len(m.Body)+fabric.MessageRoom <= maxRequest
}
