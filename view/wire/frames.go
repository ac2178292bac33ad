package wire

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/bourse-dev/bourse"
)

// A snapshot on the wire: the wire version, then frames, each a byte that says
// its kind, the length of its body in four bytes, most significant first, and
// the body in CBOR. The first is a head, the last a tail; between them are births and rows.
const (
	FrameHead   byte = 'h' // wireSnapshot
	frameBirths byte = 'b' // array of births, which rows that follow name by their ids
	frameRows   byte = 'r' // array of byte strings, each a wireRow
	frameTail   byte = 't' // wireTail
)

// Bounds of a snapshot.
const (
	frameSize    = 64 << 10             // about how large a frame of rows becomes
	maxBodySize  = 2*MaxRow + frameSize // of a frame that is taken in
	maxSnapshot  = 4 << 30              // bytes that are taken in
	frameHeading = 5
)

// SnapshotHead says what a snapshot is of: a stream, or all shared rows.
type SnapshotHead struct {
	Site   string `cbor:"1,keyasint,omitempty"`
	Epoch  uint64 `cbor:"2,keyasint,omitempty"`
	Seq    uint64 `cbor:"3,keyasint,omitempty"`
	At     int64  `cbor:"4,keyasint,omitempty"`
	Shared bool   `cbor:"6,keyasint,omitempty"`
	Birth  []byte `cbor:"7,keyasint,omitempty"` // of the stream
}

// wireTail shows that a snapshot is whole.
type wireTail struct {
	Rows uint64 `cbor:"1,keyasint"`
	Hash uint64 `cbor:"2,keyasint"` // XXH64 of all frames before
}

// FrameWriter writes a snapshot with little memory.
type FrameWriter struct {
	w     *bufio.Writer
	hash  *xxhash.Digest
	rows  [][]byte
	bytes int
	count uint64
}

// NewFrameWriter begins a snapshot.
func NewFrameWriter(w io.Writer, head SnapshotHead) (*FrameWriter, error) {
	f := &FrameWriter{w: bufio.NewWriterSize(w, frameSize), hash: xxhash.New()}
	if err := f.w.WriteByte(WireVersion); err != nil {
		return nil, err
	}
	return f, f.frame(FrameHead, head)
}

func (f *FrameWriter) frame(kind byte, body any) error {
	b, err := EncodeBody(body)
	if err != nil {
		return err
	}
	heading := binary.BigEndian.AppendUint32([]byte{kind}, uint32(len(b)))
	_, _ = f.hash.Write(heading) // a hash takes everything
	_, _ = f.hash.Write(b)
	if _, err := f.w.Write(heading); err != nil {
		return err
	}
	_, err = f.w.Write(b)
	return err
}

// Row writes a row.
func (f *FrameWriter) Row(w RowBody) error {
	b, err := EncodeBody(w)
	if err != nil {
		return err
	}
	f.rows = append(f.rows, b)
	f.count++
	if f.bytes += len(b) + 4; f.bytes < frameSize {
		return nil
	}
	return f.flushRows()
}

// Birth writes a birth, which rows that follow name by its id.
func (f *FrameWriter) Birth(birth []byte) error { return f.frame(frameBirths, [][]byte{birth}) }

func (f *FrameWriter) flushRows() error {
	if len(f.rows) == 0 {
		return nil
	}
	err := f.frame(frameRows, f.rows)
	f.rows, f.bytes = f.rows[:0], 0
	return err
}

// Close ends the snapshot. Without it the snapshot is cut short.
func (f *FrameWriter) Close() error {
	if err := f.flushRows(); err != nil {
		return err
	}
	if err := f.frame(frameTail, wireTail{f.count, f.hash.Sum64()}); err != nil {
		return err
	}
	return f.w.Flush()
}

// frameReader reads a snapshot, a frame at a time, and no further than its
// tail.
type frameReader struct {
	r     io.Reader
	hash  *xxhash.Digest
	bytes int64
	buf   []byte
}

func newFrameReader(r io.Reader) (*frameReader, SnapshotHead, error) {
	f := &frameReader{r: r, hash: xxhash.New()}
	var head SnapshotHead
	var version [1]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return nil, head, cut(err)
	}
	if version[0] != WireVersion {
		return nil, head, bourse.Errorf(bourse.CodeInvalid, "a snapshot in wire version %d, this release reads %d", version[0], WireVersion)
	}
	kind, body, err := f.next()
	if err != nil {
		return nil, head, err
	}
	if kind != FrameHead {
		return nil, head, bourse.Errorf(bourse.CodeInvalid, "a snapshot without a head")
	}
	return f, head, decodeBody(body, &head)
}

// next returns a frame's body, which is good until the next call. A tail is
// compared with what came before it.
func (f *frameReader) next() (kind byte, body []byte, err error) {
	var heading [frameHeading]byte
	if _, err := io.ReadFull(f.r, heading[:]); err != nil {
		return 0, nil, cut(err)
	}
	n := int(binary.BigEndian.Uint32(heading[1:]))
	if n > maxBodySize {
		return 0, nil, bourse.Errorf(bourse.CodeInvalid, "a frame of %d bytes, at most %d", n, maxBodySize)
	}
	if f.bytes += int64(n) + frameHeading; f.bytes > maxSnapshot {
		return 0, nil, bourse.Errorf(bourse.CodeInvalid, "a snapshot of more than %d bytes", int64(maxSnapshot))
	}
	// Room grows with what has come: a heading alone cannot ask for much.
	f.buf = f.buf[:0]
	for len(f.buf) < n {
		step := min(n-len(f.buf), frameSize)
		f.buf = slices.Grow(f.buf, step)[:len(f.buf)+step]
		if _, err := io.ReadFull(f.r, f.buf[len(f.buf)-step:]); err != nil {
			return 0, nil, cut(err)
		}
	}
	if kind = heading[0]; kind == frameTail {
		return kind, f.buf, nil
	}
	_, _ = f.hash.Write(heading[:])
	_, _ = f.hash.Write(f.buf)
	return kind, f.buf, nil
}

// ends checks the tail.
func (f *frameReader) ends(body []byte, rows uint64) error {
	var tail wireTail
	if err := decodeBody(body, &tail); err != nil {
		return err
	}
	if tail.Rows != rows || tail.Hash != f.hash.Sum64() {
		return bourse.Errorf(bourse.CodeInvalid, "a snapshot that is not what was sent: %d rows of %d", rows, tail.Rows)
	}
	return nil
}

func decodeBody(body []byte, into any) error {
	if err := ReadBody(body, into); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "a malformed snapshot: %w", err)
	}
	return nil
}

// cut names the error of a snapshot that ends too early.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bourse.Errorf(bourse.CodeInvalid, "a snapshot that was cut short")
	}
	return fmt.Errorf("read a snapshot: %w", err)
}
