package volume

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"runtime"
	"sync"

	"github.com/cespare/xxhash/v2"
	"golang.org/x/sync/errgroup"
)

const (
	// chunkBytes is the size of the chunks into which an image is divided while it is copied or compared on one host.
	chunkBytes = 4 << 20
	// pieceBytes is the number of bytes of an image that are read at once. A piece is small
	// enough to remain in the processor's cache while it is read, hashed and written.
	pieceBytes = 256 << 10
)

var zeros [pieceBytes]byte

// sums contains the checksums of an image's chunks by chunk number, except for chunks that are all zeros. The checksums
// are fast to compute, but not secure.
type sums map[int]uint64

// chunkLength returns the length of chunk n of an image.
func chunkLength(bytes int64, n int) int64 { return min(chunkBytes, bytes-int64(n)*chunkBytes) }

// dataChunks returns, in order, the numbers of a file's chunks that are not entirely holes. It
// does not read the data.
func dataChunks(f *os.File, size int64) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for n, off := 0, int64(0); off < size; off = int64(n) * chunkBytes {
			from, to, err := nextData(f, off)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(0, err)
				return
			}
			for n = max(n, int(from/chunkBytes)); int64(n)*chunkBytes < min(to, size); n++ {
				if !yield(n, nil) {
					return
				}
			}
		}
	}
}

// eachChunk calls do for each chunk, concurrently on all processors, until a call fails. Each call gets a buffer of
// pieceBytes bytes.
func eachChunk(ctx context.Context, chunks iter.Seq2[int, error], do func(n int, buf []byte) error) error {
	g, ctx := errgroup.WithContext(ctx)
	work := make(chan int)
	for range max(2, runtime.GOMAXPROCS(0)) {
		g.Go(func() error {
			buf := make([]byte, pieceBytes)
			for n := range work {
				if err := do(n, buf); err != nil {
					return err
				}
			}
			return nil
		})
	}
	g.Go(func() error {
		defer close(work)
		for n, err := range chunks {
			if err != nil {
				return err
			}
			select {
			case work <- n:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	return g.Wait()
}

// readPiece reads a piece of an image. It returns zeros beyond the file's end, because an image may be truncated
// while it is read.
func readPiece(f io.ReaderAt, off int64, piece []byte) error {
	got, err := f.ReadAt(piece, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	clear(piece[got:])
	return nil
}

func isZero(piece []byte) bool { return bytes.Equal(piece, zeros[:len(piece)]) }

// copyImage copies an image to dst, an empty file, and returns the checksums of its chunks.
func copyImage(ctx context.Context, src, dst *os.File, size int64) (sums, error) {
	all := sums{}
	var mu sync.Mutex
	err := eachChunk(ctx, dataChunks(src, size), func(n int, buf []byte) error {
		sum, data, err := sumChunk(src, dst, size, n, buf)
		if err != nil || !data {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		all[n] = sum
		return nil
	})
	return all, err
}

// sumChunk returns the checksum of a chunk. data is false if the chunk is all zeros. If dst is
// not nil, sumChunk writes the pieces that are not all zeros to dst.
func sumChunk(src, dst *os.File, size int64, n int, buf []byte) (sum uint64, data bool, err error) {
	h := xxhash.New()
	off := int64(n) * chunkBytes
	for end := off + chunkLength(size, n); off < end; off += pieceBytes {
		piece := buf[:min(pieceBytes, end-off)]
		if err := readPiece(src, off, piece); err != nil {
			return 0, false, err
		}
		_, _ = h.Write(piece) // writing to a hash cannot fail
		if isZero(piece) {
			continue
		}
		data = true
		if dst == nil {
			continue
		}
		if _, err := dst.WriteAt(piece, off); err != nil {
			return 0, false, err
		}
	}
	if dst != nil && data {
		writeBack(dst, int64(n)*chunkBytes, chunkLength(size, n))
	}
	return h.Sum64(), data, nil
}
