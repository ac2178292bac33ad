package image

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/unpack"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/semaphore"
)

// layerConcurrency is the maximum number of an image's layers that are fetched concurrently.
const layerConcurrency = 3

// unpack fetches an image's layers concurrently, and unpacks each layer as soon as it and all layers below it have
// arrived.
func (s *Store) unpack(ctx context.Context, c *containerd.Client, p *pull, o outline, config imageConfig) error {
	manifest, d := o.manifest.desc, o.document
	fetcher, err := s.hosts.resolver(s.hosts.tenantOf(p.org, p.ref.Registry)).Fetcher(ctx, recordName(p.ref))
	if err != nil {
		return err
	}
	f := &layerFetch{
		store: &ingester{Store: c.ContentStore(), client: c}, fetcher: fetcher, pull: p,
		manifest: manifest.Digest, document: d, counts: map[digest.Digest]*layerCount{},
	}
	for _, l := range d.Layers {
		f.counts[l.Digest] = &layerCount{pull: p}
	}
	f.remaining = len(f.counts)
	watched := &measuringSnapshotter{Snapshotter: c.SnapshotService(s.config.Snapshotter), store: s, client: c, pull: p}
	stop := s.watch(ctx, watched)
	defer stop()
	unpacker, err := unpack.NewUnpacker(ctx, f.store,
		unpack.WithUnpackPlatform(unpack.Platform{
			SnapshotterKey: s.config.Snapshotter, Snapshotter: watched, Applier: applier{c.DiffService(), unpacksTo(d.Layers, config)},
		}),
		unpack.WithLimiter(semaphore.NewWeighted(layerConcurrency)),
		// Without this option, transfers could continue after unpacking had failed.
		unpack.WithFetchAllContent(),
	)
	if err != nil {
		return err
	}
	err = images.Dispatch(ctx, unpacker.Unpack(f), nil, manifest)
	if _, failed := unpacker.Wait(); failed != nil {
		err = failed // failed is the cause of err
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// unpacksTo maps the compressed digest of each layer to its uncompressed digest according to the configuration.
// layers may contain the same layer twice.
func unpacksTo(layers []ocispec.Descriptor, config imageConfig) map[digest.Digest]digest.Digest {
	out := make(map[digest.Digest]digest.Digest, len(layers))
	for i, l := range layers {
		out[l.Digest] = config.RootFS.DiffIDs[i]
	}
	return out
}

// layerFetch is the handler that fetches the layers of an image that is being unpacked.
type layerFetch struct {
	store    content.Store
	fetcher  remotes.Fetcher
	pull     *pull
	manifest digest.Digest
	document document

	counts    map[digest.Digest]*layerCount
	mu        sync.Mutex
	remaining int // number of layers that have not arrived yet
}

// Handle returns the manifest's children, which are the configuration and the layers, and
// fetches each layer. The manifest and the configuration are already stored.
func (f *layerFetch) Handle(ctx context.Context, desc ocispec.Descriptor) ([]ocispec.Descriptor, error) {
	switch desc.Digest {
	case f.manifest:
		return append([]ocispec.Descriptor{*f.document.Config}, f.document.Layers...), nil
	case f.document.Config.Digest:
		return nil, nil
	}
	count := f.counts[desc.Digest]
	fetch := remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		body, err := f.fetcher.Fetch(ctx, desc)
		if err != nil {
			return nil, &registryError{err}
		}
		return &countingReader{ReadCloser: body, count: count, size: desc.Size}, nil
	})
	if err := remotes.Fetch(ctx, f.store, fetch, desc); err != nil && !errdefs.IsAlreadyExists(err) {
		return nil, fmt.Errorf("layer %s: %w", desc.Digest, err)
	}
	if count.reach(desc.Size) {
		f.arrived()
	}
	return nil, nil
}

// arrived records that one more layer has arrived. Once all layers have arrived, the pull's status changes to
// unpacking.
func (f *layerFetch) arrived() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.remaining--; f.remaining == 0 {
		f.pull.enter(statusUnpacking)
	}
}

// layerCount counts the bytes of a layer that have been fetched, for the pull's progress. A byte that is fetched again
// does not count twice.
type layerCount struct {
	pull *pull
	mu   sync.Mutex
	max  int64
	done bool
}

func (c *layerCount) to(offset int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if offset > c.max {
		c.pull.received.Add(offset - c.max)
		c.max = offset
	}
}

// reach records that the whole layer has arrived. It returns true only on the first call.
func (c *layerCount) reach(size int64) bool {
	c.to(size)
	c.mu.Lock()
	defer c.mu.Unlock()
	first := !c.done
	c.done = true
	return first
}

// countingReader counts the bytes of a layer as they are read from the registry. To resume an interrupted transfer,
// containerd calls Seek before the first Read, and the skipped bytes are counted as well.
type countingReader struct {
	io.ReadCloser
	count  *layerCount
	size   int64
	offset int64
}

// Read reads and counts bytes.
func (b *countingReader) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.offset += int64(n)
	b.count.to(min(b.offset, b.size))
	switch {
	case err == nil:
		return n, nil
	case !errors.Is(err, io.EOF):
		return n, &registryError{err}
	case b.offset < b.size:
		return n, errShort
	}
	return n, io.EOF
}

// Seek sets the position at which the transfer resumes.
func (b *countingReader) Seek(offset int64, whence int) (int64, error) {
	seeker, ok := b.ReadCloser.(io.Seeker)
	if !ok {
		return 0, errdefs.ErrNotImplemented
	}
	n, err := seeker.Seek(offset, whence)
	if err == nil {
		b.offset = n
		b.count.to(min(n, b.size))
	}
	return n, err
}
