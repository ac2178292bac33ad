package push

import (
	"context"
	"sync"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// meter provides the content of the image that is being pushed, and reports progress as parts are read or skipped.
type meter struct {
	from   content.Provider
	sizes  map[digest.Digest]int64
	report func(Progress)

	mu   sync.Mutex
	read map[digest.Digest]int64
	now  Progress
}

func newMeter(from content.Provider, sizes map[digest.Digest]int64, report func(Progress)) *meter {
	m := &meter{from: from, sizes: sizes, report: report, read: map[digest.Digest]int64{}}
	for _, size := range sizes {
		m.now.Total += size
	}
	return m
}

// count returns a handler that calls next for each part, and then counts the part as sent.
func (m *meter) count(next images.Handler) images.Handler {
	return images.HandlerFunc(func(ctx context.Context, d ocispec.Descriptor) ([]ocispec.Descriptor, error) {
		children, err := next.Handle(ctx, d)
		if err == nil {
			m.reached(d.Digest, d.Size)
		}
		return children, err
	})
}

// reached records that a part was read up to the given offset, and reports the progress.
func (m *meter) reached(d digest.Digest, offset int64) {
	if m.report == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	more := min(offset, m.sizes[d]) - m.read[d]
	if more <= 0 {
		return
	}
	m.read[d] += more
	m.now.Sent += more
	m.report(m.now)
}

// ReaderAt implements [content.Provider].
func (m *meter) ReaderAt(ctx context.Context, d ocispec.Descriptor) (content.ReaderAt, error) {
	r, err := m.from.ReaderAt(ctx, d)
	if err != nil {
		return nil, err
	}
	return &meteredReader{r, m, d.Digest}, nil
}

type meteredReader struct {
	content.ReaderAt
	meter  *meter
	digest digest.Digest
}

// ReadAt implements [io.ReaderAt].
func (r *meteredReader) ReadAt(p []byte, offset int64) (int, error) {
	n, err := r.ReaderAt.ReadAt(p, offset)
	r.meter.reached(r.digest, offset+int64(n))
	return n, err
}
