package volume

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/bourse-dev/bourse"
)

const (
	// streamTries is the number of consecutive broken streams after which receive gives up. If a
	// stream makes progress before it breaks, the count restarts at one.
	streamTries = 3
	// contentTries is the number of checksum mismatches after which receive gives up.
	contentTries = 3
	// syncBytes is the number of bytes that are received between two syncs.
	syncBytes = 64 << 20
)

var errChecksum = errors.New("the content differs from its checksum")

// receive creates the image from a source's streams. If a stream breaks, it requests another one.
func (f *filler) receive(ctx context.Context, src Source) error {
	wrong, broken := 0, 0
	for {
		at, err := f.position()
		if err != nil {
			return failed(err, "fill %s", f.id)
		}
		reached, err := f.receiveFrom(ctx, src, at)
		switch {
		case err == nil || isPermanent(err):
			return failed(err, "fill %s", f.id)
		case errors.Is(err, errChecksum):
			if wrong++; wrong == contentTries {
				return bourse.Errorf(bourse.CodeUnavailable, "fill %s: %w", f.id, err)
			}
		case reached.Moment == at.Moment && reached.Offset > at.Offset:
			broken = 1
		default:
			broken++
		}
		if broken == streamTries {
			return failed(err, "fill %s", f.id)
		}
		f.s.log.Warn("receive volume failed", "volume", f.id, "offset", reached.Offset, "err", err)
		if err := sleep(ctx, f.s.pause<<broken); err != nil {
			return err
		}
	}
}

// isPermanent reports whether another attempt would fail with the same error.
func isPermanent(err error) bool {
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeForbidden, bourse.CodeUnauthorized, bourse.CodeInvalid, bourse.CodeFailedPrecondition, bourse.CodeCanceled, bourse.CodeInsufficient:
		return true
	default:
		_, ours := errors.AsType[*diskError](err)
		return ours
	}
}

// diskError marks an error that comes from this host's disk, not from the source.
type diskError struct{ error }

func (e *diskError) Unwrap() error { return e.error }

// asDiskError wraps err in a diskError. It returns nil if err is nil.
func asDiskError(err error) error {
	if err == nil {
		return nil
	}
	return &diskError{err}
}

// receiveFrom receives a stream. It returns the position up to which the image is durable.
func (f *filler) receiveFrom(ctx context.Context, src Source, at Position) (Position, error) {
	stream, err := src(ctx, at)
	if err != nil {
		return at, sourceError(ctx, err)
	}
	defer func() { _ = stream.Close() }() // ignore the error, because all received data is verified
	r := bufio.NewReaderSize(stream, 64<<10)
	head, err := readHeader(r)
	if err == nil {
		err = f.checkContent(&head.content)
	}
	if err != nil {
		return at, sourceError(ctx, err)
	}
	if head.Moment != at.Moment || at.Moment == "" {
		at = Position{Moment: head.Moment}
		if err := f.s.begin(f.id, stageFilling); err != nil {
			return at, asDiskError(err)
		}
		f.s.step("filling")
	}
	image, err := f.openTarget(&head, at)
	if err != nil {
		return at, asDiskError(err)
	}
	in := &receiver{f: f, image: image, size: head.Bytes, at: at, next: at.Offset, sum: newSum(&head.content)}
	err = eachPiece(ctx, image, at.Offset, func(off int64, piece []byte) error { in.sum.add(off, piece); return nil })
	if err = asDiskError(err); err == nil {
		err = in.copy(ctx, r)
	}
	if errors.Is(err, errChecksum) {
		return Position{}, errors.Join(err, image.Close(), f.s.clear(f.id, stageFilling))
	}
	return in.at, errors.Join(err, asDiskError(image.Close()))
}

// openTarget prepares the image for a stream that starts at the given position. It discards any
// data after the position, because a crash may have damaged that data.
func (f *filler) openTarget(head *header, at Position) (*os.File, error) {
	if head.Encrypted {
		if err := writeFile(f.s.path(f.id, stageFilling, sourceKeyFile), head.Key); err != nil {
			return nil, err
		}
	}
	if err := f.s.keepVM(f.id, stageFilling, &head.content); err != nil {
		return nil, err
	}
	image, err := os.OpenFile(f.s.path(f.id, stageFilling, imageFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(image.Truncate(at.Offset), image.Truncate(head.Bytes)); err != nil {
		return nil, errors.Join(err, image.Close())
	}
	return image, nil
}

// receiver writes the pieces of a stream to an image.
type receiver struct {
	f     *filler
	image *os.File
	size  int64
	sum   sum
	at    Position // the position up to which the image is durable
	next  int64    // minimum offset of the next piece
}

// copy receives pieces until the stream ends or breaks, and makes the received data durable.
func (in *receiver) copy(ctx context.Context, r *bufio.Reader) error {
	piece := make([]byte, pieceBytes)
	for unsynced := 0; ; {
		n, err := in.piece(ctx, r, piece)
		if errors.Is(err, io.EOF) {
			return asDiskError(in.save())
		}
		if err != nil {
			if isPermanent(err) || errors.Is(err, errChecksum) {
				return err
			}
			return errors.Join(err, asDiskError(in.save()))
		}
		if unsynced += n; unsynced >= syncBytes {
			unsynced = 0
			if err := in.save(); err != nil {
				return asDiskError(err)
			}
		}
	}
}

// piece receives one piece. It returns io.EOF after the verified end of the stream.
func (in *receiver) piece(ctx context.Context, r *bufio.Reader, buf []byte) (int, error) {
	if _, err := io.ReadFull(r, buf[:8]); err != nil {
		return 0, truncatedStream(ctx, err)
	}
	off := binary.BigEndian.Uint64(buf)
	if off == uint64(in.size) {
		want := make([]byte, in.sum.Size())
		if _, err := io.ReadFull(r, want); err != nil {
			return 0, truncatedStream(ctx, err)
		}
		if string(want) != string(in.sum.Sum(nil)) {
			return 0, errChecksum
		}
		in.next = in.size
		return 0, io.EOF
	}
	if off > uint64(in.size) || int64(off) < in.next || off%pieceBytes != 0 {
		return 0, bourse.Errorf(bourse.CodeInvalid, "invalid volume stream: piece at offset %d, want at least %d, of %d bytes", off, in.next, in.size)
	}
	at := int64(off)
	piece := buf[:min(pieceBytes, in.size-at)]
	if _, err := io.ReadFull(r, piece); err != nil {
		return 0, truncatedStream(ctx, err)
	}
	in.sum.add(at, piece)
	if _, err := in.image.WriteAt(piece, at); err != nil {
		return 0, asDiskError(err)
	}
	writeBack(in.image, at, int64(len(piece)))
	in.next = at + int64(len(piece))
	return len(piece), nil
}

// truncatedStream returns the error for a stream that ended too early. It never matches io.EOF,
// which would indicate a complete stream.
func truncatedStream(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return bourse.Errorf(bourse.CodeUnavailable, "the source ended the stream early")
	}
	return sourceError(ctx, err)
}

// sourceError adds a code to an error from the source, unless the error already has a code.
func sourceError(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	return bourse.Errorf(bourse.CodeUnavailable, "source: %w", err)
}

// save syncs the image and then records the position. A crash between these two steps loses only
// the new position.
func (in *receiver) save() error {
	if in.next == in.at.Offset {
		return in.image.Sync()
	}
	at := Position{Moment: in.at.Moment, Offset: in.next}
	b, err := json.Marshal(at)
	if err != nil {
		return err
	}
	if err := in.image.Sync(); err != nil {
		return err
	}
	in.f.s.step("synced")
	path := func(file string) string { return in.f.s.path(in.f.id, stageFilling, file) }
	if err := writeFile(path(progressNew), b); err != nil {
		return err
	}
	if err := os.Rename(path(progressNew), path(progressFile)); err != nil {
		return err
	}
	in.at = at
	in.f.s.step("saved")
	return nil
}

// position returns the recorded position at which to continue. If no position is recorded, it
// returns the zero Position.
func (f *filler) position() (Position, error) {
	var at Position
	b, err := os.ReadFile(f.s.path(f.id, stageFilling, progressFile))
	if errors.Is(err, os.ErrNotExist) {
		return at, nil
	}
	if err != nil {
		return at, err
	}
	if err := json.Unmarshal(b, &at); err != nil || at.Offset < 0 {
		return Position{}, fmt.Errorf("progress %q: %w", b, err)
	}
	return at, nil
}
