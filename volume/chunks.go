package volume

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"
	"iter"
	"os"
	"runtime"
	"sync"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"
)

// pieceBytes is how much of a chunk is read at once: it stays in the
// processor's cache between reading, hashing and writing.
const pieceBytes = 256 << 10

var zeros [pieceBytes]byte

// chunkSum is what is known of a chunk that is not all zero.
type chunkSum struct {
	digest string // sha256
	quick  uint64 // xxhash: whether it changed is asked while writers wait
}

// sums are the chunks of an image that are not all zero.
type sums map[int]chunkSum

func (s sums) manifest(bytes int64) Manifest {
	m := Manifest{Bytes: bytes, Chunks: make([]Chunk, 0, len(s))}
	for n := range chunks(bytes) {
		if c, ok := s[n]; ok {
			m.Chunks = append(m.Chunks, Chunk{N: n, Digest: c.digest})
		}
	}
	return m
}

// dataChunks returns, in order, the chunks of a file that are not one hole. It
// reads no data.
func dataChunks(f *os.File, size int64) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n, off := 0, int64(0); off < size; off = int64(n) * ChunkBytes {
			from, to, err := nextData(f, off)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(0, err)
				return
			}
			for n = max(n, int(from/ChunkBytes)); int64(n)*ChunkBytes < min(to, size); n++ {
				if !yield(n, nil) {
					return
				}
			}
		}
	}
}

// eachChunk calls do for the chunks, on all processors at once.
func eachChunk(ctx context.Context, ns iter.Seq2[int, error], do func(n int, buf []byte) error) error {
	return each(ctx, max(2, runtime.GOMAXPROCS(0)), ns, func(_ context.Context, n int, buf []byte) error { return do(n, buf) })
}

// each calls do for the items, so many at once, each with a buffer of
// pieceBytes, until one fails.
func each[T any](ctx context.Context, workers int, items iter.Seq2[T, error], do func(ctx context.Context, item T, buf []byte) error) error {
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan T)
	for range workers {
		g.Go(func() error {
			buf := aligned(pieceBytes)
			for item := range work {
				if err := do(ctx, item, buf); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(work)
		for item, err := range items {
			if err != nil {
				return err
			}
			select {
			case work <- item:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	return g.Wait()
}

// aligned returns a buffer that direct IO can use.
func aligned(bytes int) []byte {
	b := make([]byte, bytes+blockSize)
	off := int(-uintptr(unsafe.Pointer(&b[0])) % blockSize)
	return b[off : off+bytes : off+bytes]
}

// piecesOf reads chunk n of an image piece by piece; what is behind the file's
// end reads as zero, since an image may be cut short under us.
func piecesOf(f io.ReaderAt, size int64, n int, buf []byte, take func(off int64, piece []byte) error) error {
	off := int64(n) * ChunkBytes
	for end := off + chunkLength(size, n); off < end; {
		piece := buf[:min(pieceBytes, end-off)]
		got, err := f.ReadAt(piece, off)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		clear(piece[got:])
		if err := take(off, piece); err != nil {
			return err
		}
		off += int64(len(piece))
	}
	return nil
}

func isZero(piece []byte) bool { return bytes.Equal(piece, zeros[:len(piece)]) }

// summing makes a chunk's sums, piece by piece.
type summing struct {
	sha   hash.Hash
	quick *xxhash.Digest
	data  bool // not all of it was zero
}

func newSumming() *summing { return &summing{sha: sha256.New(), quick: xxhash.New()} }

func (s *summing) add(piece []byte, zero bool) {
	_, _ = s.sha.Write(piece)   // a hash takes all
	_, _ = s.quick.Write(piece) // cannot fail
	s.data = s.data || !zero
}

// sumImage reads an image and returns its sums. When dst is not nil it becomes a
// copy: it has to be a file without data.
func sumImage(ctx context.Context, src, dst *os.File, size int64) (sums, error) {
	all := sums{}
	var mu sync.Mutex
	err := eachChunk(ctx, dataChunks(src, size), func(n int, buf []byte) error {
		sum, ok, err := copyChunk(src, dst, size, n, buf)
		if err != nil || !ok {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all[n] = sum
		return nil
	})
	return all, err
}

// copyChunk writes what is not zero of a chunk to dst, if there is one, and
// returns the chunk's sums; ok is false when all of it is zero.
func copyChunk(src, dst *os.File, size int64, n int, buf []byte) (sum chunkSum, ok bool, err error) {
	s := newSumming()
	err = piecesOf(src, size, n, buf, func(off int64, piece []byte) error {
		zero := isZero(piece)
		s.add(piece, zero)
		if dst == nil || zero {
			return nil
		}
		_, err := dst.WriteAt(piece, off)
		return err
	})
	if err != nil || !s.data {
		return chunkSum{}, false, err
	}
	if dst != nil {
		writeBack(dst, int64(n)*ChunkBytes, chunkLength(size, n))
	}
	return chunkSum{digest: digestOf(s.sha), quick: s.quick.Sum64()}, true, nil
}

// quickSum returns a sum that changes with the chunk; ok is false when it is
// all zero.
func quickSum(src *os.File, size int64, n int, buf []byte) (sum uint64, ok bool, err error) {
	h := xxhash.New()
	err = piecesOf(src, size, n, buf, func(_ int64, piece []byte) error {
		_, _ = h.Write(piece) // a hash takes all
		ok = ok || !isZero(piece)
		return nil
	})
	return h.Sum64(), ok, err
}
