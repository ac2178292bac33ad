package volume

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"

	"github.com/bourse-dev/bourse"
)

// The content of an image is transferred as one stream:
//
//	a header, as one line of JSON
//	for each piece that is not all zeros, in order: its offset (8 bytes, big endian), then its bytes
//	the image's size (8 bytes), then the content's SHA-256 (32 bytes)
//
// Pieces start at multiples of pieceBytes. All pieces have that length, except an image's last
// piece, which may be shorter. A stream that continues an earlier one starts with a later piece;
// its checksum still covers the whole content.

// Position is the start of a stream: an offset in the source's content at a certain moment. The
// zero value means the beginning of the current content.
type Position struct {
	Moment string `json:"moment"` // from the header of an earlier stream; "" for the current content
	Offset int64  `json:"offset"`
}

// Source opens a stream of a volume's or snapshot's content on another host. If that host no longer has the content
// that from.Moment identifies, the stream starts at the beginning of newer content. The receiver does not trust the
// stream.
type Source func(ctx context.Context, from Position) (io.ReadCloser, error)

// content describes an image.
type content struct {
	Volume    bourse.VolumeID `json:"volume"` // the volume whose content the image contains
	Bytes     int64           `json:"bytes"`  // size of the image in bytes
	Encrypted bool            `json:"encrypted,omitempty"`
	VM        bool            `json:"vm,omitempty"`     // whether a virtual machine may have written to the image
	Digest    string          `json:"digest,omitempty"` // snapshots only: digest of the content, "sha256:…"
}

// header is the first line of a stream.
type header struct {
	content
	Moment string `json:"moment"`
	Key    []byte `json:"key,omitempty"` // key that opens an encrypted image
}

// maxHeader is the maximum length of a header in bytes.
const maxHeader = 4 << 10

func readHeader(r *bufio.Reader) (header, error) {
	var h header
	line, err := r.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull) || err == nil && len(line) > maxHeader:
		return h, bourse.Errorf(bourse.CodeInvalid, "invalid volume stream: the header is too long")
	case err != nil:
		return h, err
	}
	if err := json.Unmarshal(line, &h); err != nil {
		return h, bourse.Errorf(bourse.CodeInvalid, "invalid volume stream: %w", err)
	}
	if h.Bytes < 1 || h.Bytes > bourse.MaxVolumeGB*gib || h.Bytes%blockSize != 0 {
		return h, bourse.Errorf(bourse.CodeInvalid, "invalid volume stream: the image has %d bytes", h.Bytes)
	}
	return h, nil
}

// sum computes the digest of an image. It skips pieces that are all zeros, so it makes no difference whether they are
// holes.
type sum struct{ hash.Hash }

func newSum(c *content) sum {
	s := sum{sha256.New()}
	_, _ = fmt.Fprintf(s, "bourse volume 2 %d %t\n", c.Bytes, c.Encrypted) // writing to a hash cannot fail
	return s
}

func (s sum) add(off int64, piece []byte) {
	_, _ = s.Write(binary.BigEndian.AppendUint64(nil, uint64(off)))
	_, _ = s.Write(piece)
}

func (s sum) digest() string { return "sha256:" + hex.EncodeToString(s.Sum(nil)) }

// digestOf returns the digest of an image.
func digestOf(ctx context.Context, image *os.File, c *content) (string, error) {
	s := newSum(c)
	err := eachPiece(ctx, image, c.Bytes, func(off int64, piece []byte) error { s.add(off, piece); return nil })
	return s.digest(), err
}

// eachPiece calls do, in order, for each piece of an image that is not all zeros. It reads only the given number of
// bytes.
func eachPiece(ctx context.Context, image *os.File, bytes int64, do func(off int64, piece []byte) error) error {
	buf := make([]byte, pieceBytes)
	for off := int64(0); off < bytes; {
		from, to, err := nextData(image, off)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		for off = max(off, from/pieceBytes*pieceBytes); off < min(to, bytes); off += pieceBytes {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			piece := buf[:min(pieceBytes, bytes-off)]
			if err := readPiece(image, off, piece); err != nil {
				return err
			}
			if isZero(piece) {
				continue
			}
			if err := do(off, piece); err != nil {
				return err
			}
		}
	}
	return nil
}
