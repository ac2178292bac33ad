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

// An encoded snapshot consists of the wire version and a sequence of frames. A frame consists of a byte that
// identifies its kind, the length of its body (4 bytes, big-endian), and the body in CBOR. The first frame is a head,
// and the last one is a tail. Between them are birth certificates and rows.
const (
	FrameHead   byte = 'h' // a SnapshotHead
	frameBirths byte = 'b' // an array of birth certificates, to which later rows refer by ID
	frameRows   byte = 'r' // an array of byte strings, each of which is an encoded RowBody
	frameTail   byte = 't' // a wireTail
)

// Limits on a snapshot, in bytes.
const (
	frameSize    = 64 << 10             // approximate size of a frame of rows
	maxBodySize  = 2*MaxRow + frameSize // maximum size of an accepted frame
	maxSnapshot  = 4 << 30              // maximum size of an accepted snapshot
	frameHeading = 5
)

// SnapshotHead identifies the contents of a snapshot: either a stream or all shared
// rows.
type SnapshotHead struct {
	Site   string `cbor:"1,keyasint,omitempty"`
	Epoch  uint64 `cbor:"2,keyasint,omitempty"`
	Seq    uint64 `cbor:"3,keyasint,omitempty"`
	At     int64  `cbor:"4,keyasint,omitempty"`
	Shared bool   `cbor:"6,keyasint,omitempty"`
	Birth  []byte `cbor:"7,keyasint,omitempty"` // the stream's birth certificate
}

// wireTail is the last frame of a snapshot. It proves that the snapshot is complete.
type wireTail struct {
	Rows uint64 `cbor:"1,keyasint"`
	Hash uint64 `cbor:"2,keyasint"` // XXH64 of all previous frames
}

// FrameWriter writes a snapshot as a sequence of frames, so that the whole snapshot never has to
// be in memory.
type FrameWriter struct {
	w     *bufio.Writer
	hash  *xxhash.Digest
	rows  [][]byte
	bytes int
	count uint64
}

// NewFrameWriter begins a snapshot and writes its head to w.
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
	_, _ = f.hash.Write(heading) // writing to a hash never fails
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

// Birth writes a birth certificate. Rows that are written later refer to it by its ID.
func (f *FrameWriter) Birth(birth []byte) error { return f.frame(frameBirths, [][]byte{birth}) }

func (f *FrameWriter) flushRows() error {
	if len(f.rows) == 0 {
		return nil
	}
	err := f.frame(frameRows, f.rows)
	f.rows, f.bytes = f.rows[:0], 0
	return err
}

// Close completes the snapshot. A snapshot that has not been closed is invalid.
func (f *FrameWriter) Close() error {
	if err := f.flushRows(); err != nil {
		return err
	}
	if err := f.frame(frameTail, wireTail{f.count, f.hash.Sum64()}); err != nil {
		return err
	}
	return f.w.Flush()
}

// frameReader reads a snapshot frame by frame. It does not read beyond the tail.
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
		return nil, head, readError(err)
	}
	if version[0] != WireVersion {
		return nil, head, bourse.Errorf(bourse.CodeInvalid, "the snapshot has wire version %d, but this program reads only %d", version[0], WireVersion)
	}
	kind, body, err := f.next()
	if err != nil {
		return nil, head, err
	}
	if kind != FrameHead {
		return nil, head, bourse.Errorf(bourse.CodeInvalid, "the snapshot has no head")
	}
	return f, head, decodeBody(body, &head)
}

// next reads the next frame and returns its kind and body. The body is valid until the next call. next adds each frame
// except the tail to the hash.
func (f *frameReader) next() (kind byte, body []byte, err error) {
	var heading [frameHeading]byte
	if _, err := io.ReadFull(f.r, heading[:]); err != nil {
		return 0, nil, readError(err)
	}
	n := int(binary.BigEndian.Uint32(heading[1:]))
	if n > maxBodySize {
		return 0, nil, bourse.Errorf(bourse.CodeInvalid, "the snapshot has a frame of %d bytes, but at most %d are allowed", n, maxBodySize)
	}
	if f.bytes += int64(n) + frameHeading; f.bytes > maxSnapshot {
		return 0, nil, bourse.Errorf(bourse.CodeInvalid, "the snapshot has more than %d bytes", int64(maxSnapshot))
	}
	// Grow the buffer only as data arrives, so that a frame header alone cannot make it large.
	f.buf = f.buf[:0]
	for len(f.buf) < n {
		step := min(n-len(f.buf), frameSize)
		f.buf = slices.Grow(f.buf, step)[:len(f.buf)+step]
		if _, err := io.ReadFull(f.r, f.buf[len(f.buf)-step:]); err != nil {
			return 0, nil, readError(err)
		}
	}
	if kind = heading[0]; kind == frameTail {
		return kind, f.buf, nil
	}
	_, _ = f.hash.Write(heading[:])
	_, _ = f.hash.Write(f.buf)
	return kind, f.buf, nil
}

// checkTail checks that the number of rows and the hash in the tail match those of the snapshot.
func (f *frameReader) checkTail(body []byte, rows uint64) error {
	var tail wireTail
	if err := decodeBody(body, &tail); err != nil {
		return err
	}
	if tail.Rows != rows || tail.Hash != f.hash.Sum64() {
		return bourse.Errorf(bourse.CodeInvalid, "the snapshot is damaged: its hash is wrong, or rows are missing (it contains %d of %d)", rows, tail.Rows)
	}
	return nil
}

func decodeBody(body []byte, into any) error {
	if err := ReadBody(body, into); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "malformed snapshot: %w", err)
	}
	return nil
}

// readError adds context to an error that occurred while reading a snapshot. If the snapshot is
// truncated, it returns CodeInvalid.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bourse.Errorf(bourse.CodeInvalid, "the snapshot is truncated")
	}
	return fmt.Errorf("read a snapshot: %w", err)
}
