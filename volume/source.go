package volume

import (
	"context"
	"io"
	"sync"
)

// Source is what a volume is filled from: another worker's store, or this one
// (see Store.Local).
type Source interface {
	// Manifest describes the content now. It may be called again, when chunks
	// are not what the last one promised.
	Manifest(ctx context.Context) (Manifest, error)

	// Chunk returns a chunk of the latest manifest, which the caller closes.
	// Several are read at once. Its content is not trusted.
	Chunk(ctx context.Context, n int, digest string) (io.ReadCloser, error)
}

// Local returns a snapshot or volume of this store for Fill, which shares the
// blocks of its image where the host's file system can.
func (s *Store) Local(id string) Source { return &local{store: s, id: id} }

// local is a source on the same host.
type local struct {
	store *Store
	id    string

	mu     sync.Mutex
	latest string // the id of the latest manifest
}

func (l *local) Manifest(ctx context.Context) (Manifest, error) {
	m, err := l.store.Manifest(ctx, l.id)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = m.ID
	return m, err
}

func (l *local) Chunk(_ context.Context, n int, _ string) (io.ReadCloser, error) {
	l.mu.Lock()
	id := l.latest
	l.mu.Unlock()
	f, chunk, err := l.store.openChunk(id, n)
	if err != nil {
		return nil, err
	}
	return struct {
		io.Reader
		io.Closer
	}{chunk, f}, nil
}
