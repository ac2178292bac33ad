package volume

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/bourse-dev/bourse"
)

const (
	// sourceKeyFile holds the key that opens a half-filled encrypted image.
	sourceKeyFile = "sourcekey"

	chunkTries = 3
	// maxManifests bounds how often a source that changes is asked again.
	maxManifests = 8
	// batchChunks is how many chunks are made durable at once: 64 MiB.
	batchChunks = 16
	// fetchers is how many chunks are asked for at once.
	fetchers = 4
)

var errChanged = errors.New("is not what the manifest promised")

// fetchChunks fetches what is missing, again while the source changes.
func (f *filler) fetchChunks(ctx context.Context) error {
	image, err := openDirect(f.s.path(f.id, filling, imageFile))
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	defer func() { _ = image.Close() }() // it was synced
	j, err := openJournal(f.s.path(f.id, filling, journalFile))
	if err != nil {
		return failed(err, "fill %s", f.id)
	}
	defer func() { _ = j.file.Close() }() // synced before
	last := ""
	for range maxManifests {
		m, err := f.src.Manifest(ctx)
		if err == nil {
			err = f.suits(m)
		}
		if err != nil {
			return sourceFailed(ctx, fmt.Errorf("manifest: %w", err))
		}
		if m.Digest == last {
			break // it promises the same again
		}
		last = m.Digest
		err = f.follow(ctx, m, image, j)
		if err == nil || !errors.Is(err, errChanged) {
			return failed(err, "fill %s", f.id)
		}
		f.s.log.Warn("source of volume changed while it was read", "volume", f.id, "err", err)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "fill %s: the source does not send what its manifest says", f.id)
}

// follow makes the image match the manifest.
func (f *filler) follow(ctx context.Context, m Manifest, image *os.File, j *journal) error {
	if m.Encrypted {
		if err := writeFile(f.s.path(f.id, filling, sourceKeyFile), m.Key); err != nil {
			return err
		}
	}
	missing, stale := m.compare(j.done)
	// The journal must no longer list a chunk as durable when the chunk changes.
	if err := j.forget(stale); err != nil {
		return err
	}
	if err := f.empty(m, image); err != nil {
		return err
	}
	b := &batch{f: f, image: image, j: j}
	err := each(ctx, fetchers, without(missing), func(ctx context.Context, c Chunk, buf []byte) error {
		if err := f.chunk(ctx, m, c, image, buf); err != nil {
			return err
		}
		return b.add(c)
	})
	// What was fetched before a failure counts.
	return errors.Join(err, b.flush())
}

// without iterates over a list that has no errors in it.
func without(list []Chunk) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		for _, c := range list {
			if !yield(c, nil) {
				return
			}
		}
	}
}

// empty sets the image's length, and removes what is in it that the
// manifest does not have: of an earlier manifest, or of a chunk that broke off.
func (f *filler) empty(m Manifest, image *os.File) error {
	if err := image.Truncate(m.Bytes); err != nil {
		return err
	}
	wanted := make(map[int]bool, len(m.Chunks))
	for _, c := range m.Chunks {
		wanted[c.N] = true
	}
	for n, err := range dataChunks(image, m.Bytes) {
		if err == nil && !wanted[n] {
			err = punch(image, int64(n)*ChunkBytes, chunkLength(m.Bytes, n))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// compare returns the chunks that are missing, and those that are durable but
// not wanted as they are.
func (m *Manifest) compare(done map[int]string) (missing []Chunk, stale []int) {
	wanted := make(map[int]string, len(m.Chunks))
	for _, c := range m.Chunks {
		wanted[c.N] = c.Digest
		if done[c.N] != c.Digest {
			missing = append(missing, c)
		}
	}
	for n, digest := range done {
		if wanted[n] != digest {
			stale = append(stale, n)
		}
	}
	return missing, stale
}

// batch collects chunks that are in the image, to make many durable at once.
type batch struct {
	f     *filler
	image *os.File
	j     *journal

	syncing sync.Mutex // its holder writes; taken before mu

	mu     sync.Mutex
	chunks []Chunk
}

// add notes a chunk. Every so many are made durable by the caller that comes then, while
// the others go on.
func (b *batch) add(c Chunk) error {
	b.mu.Lock()
	b.chunks = append(b.chunks, c)
	full := len(b.chunks) >= batchChunks
	b.mu.Unlock()
	if !full || !b.syncing.TryLock() {
		return nil
	}
	defer b.syncing.Unlock()
	return b.write()
}

func (b *batch) flush() error {
	b.syncing.Lock()
	defer b.syncing.Unlock()
	return b.write()
}

func (b *batch) write() error {
	b.mu.Lock()
	now := b.chunks
	b.chunks = nil
	b.mu.Unlock()
	b.f.s.step("batch")
	return b.j.add(b.image, now)
}

// chunk fetches one chunk, some times when what comes is wrong.
func (f *filler) chunk(ctx context.Context, m Manifest, c Chunk, image *os.File, buf []byte) error {
	var err error
	for try := range chunkTries {
		if try > 0 {
			if err := sleep(ctx, f.s.pause<<try); err != nil {
				return err
			}
		}
		err = f.tryChunk(ctx, m, c, image, buf)
		if err == nil || final(err) {
			break
		}
	}
	return err
}

// final reports whether trying again is useless.
func final(err error) bool {
	_, ours := errors.AsType[writeError](err)
	switch bourse.CodeOf(err) {
	case bourse.CodeNotFound, bourse.CodeForbidden, bourse.CodeUnauthorized, bourse.CodeInvalid, bourse.CodeFailedPrecondition, bourse.CodeCanceled:
		return true
	default:
		return ours
	}
}

// writeError is a failure of our own disk, not of the source.
type writeError struct{ error }

func (e writeError) Unwrap() error { return e.error }

func (f *filler) tryChunk(ctx context.Context, m Manifest, c Chunk, image *os.File, buf []byte) error {
	r, err := f.src.Chunk(ctx, c.N, c.Digest)
	if err != nil {
		return sourceFailed(ctx, fmt.Errorf("chunk %d: %w", c.N, err))
	}
	defer func() { _ = r.Close() }() // its content is verified
	h := sha256.New()
	off, left := int64(c.N)*ChunkBytes, chunkLength(m.Bytes, c.N)
	for left > 0 {
		piece := buf[:min(int64(len(buf)), left)]
		if n, err := io.ReadFull(r, piece); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				return fmt.Errorf("chunk %d ends %d bytes early and %w", c.N, left-int64(n), errChanged)
			}
			return sourceFailed(ctx, fmt.Errorf("chunk %d: %w", c.N, err))
		}
		_, _ = h.Write(piece) // a hash takes all
		if err := put(image, piece, off); err != nil {
			return writeError{err}
		}
		off, left = off+int64(len(piece)), left-int64(len(piece))
	}
	if n, _ := io.ReadFull(r, buf[:1]); n > 0 { // an error here is that of a source that has sent everything
		return fmt.Errorf("chunk %d is longer than %d bytes and %w", c.N, chunkLength(m.Bytes, c.N), errChanged)
	}
	if got := digestOf(h); got != c.Digest {
		return fmt.Errorf("chunk %d has digest %s and %w", c.N, got, errChanged)
	}
	writeBack(image, int64(c.N)*ChunkBytes, chunkLength(m.Bytes, c.N))
	return nil
}

// put writes a piece, or makes a hole of it: the image stays as sparse as its
// source.
func put(image *os.File, piece []byte, off int64) error {
	if isZero(piece) {
		return punch(image, off, int64(len(piece)))
	}
	_, err := image.WriteAt(piece, off)
	return err
}

// sourceFailed adds a code to an error of the source, unless it has one.
func sourceFailed(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if _, ok := errors.AsType[*bourse.Error](err); ok {
		return err
	}
	return bourse.Errorf(bourse.CodeUnavailable, "source: %w", err)
}
