package image

import (
	"context"
	"fmt"
	"maps"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/diff"
	"github.com/containerd/containerd/v2/core/mount"
	"github.com/containerd/containerd/v2/core/snapshots"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// applier unpacks layers. If a layer itself is the cause of an error, applier wraps the error in a layerError.
type applier struct {
	diff.Applier
	// Digests of the uncompressed layers according to the image's configuration, by the layers' compressed digests.
	want map[digest.Digest]digest.Digest
}

// Apply unpacks a layer. It returns a layerError if the layer is invalid or does not match
// the image's configuration. If containerd is unavailable, it returns containerd's error
// unchanged.
func (a applier) Apply(ctx context.Context, desc ocispec.Descriptor, mounts []mount.Mount, opts ...diff.ApplyOpt) (ocispec.Descriptor, error) {
	out, err := a.Applier.Apply(ctx, desc, mounts, opts...)
	if err != nil && ctx.Err() == nil && !unreachable(err) {
		return out, &layerError{err}
	}
	if want := a.want[desc.Digest]; err == nil && out.Digest != want {
		return out, &layerError{fmt.Errorf("unpacked layer %s has digest %s, but the image's configuration specifies %s", desc.Digest, out.Digest, want)}
	}
	return out, err
}

// ingester is a content store that distinguishes the two causes of "unavailable" errors from containerd's client.
// Either another process is writing the blob, and the caller must wait, or containerd is unreachable.
type ingester struct {
	content.Store
	client *containerd.Client
}

// containerdError means that containerd does not answer. It contains only the text of the client's error and does not
// wrap it, because containerd's client would retry if it found an "unavailable" error.
type containerdError struct{ text string }

func (e *containerdError) Error() string { return "containerd does not answer: " + e.text }

// Writer opens a blob for writing. It returns a containerdError if containerd is unreachable.
func (i *ingester) Writer(ctx context.Context, opts ...content.WriterOpt) (content.Writer, error) {
	w, err := i.Store.Writer(ctx, opts...)
	if err == nil || !errdefs.IsUnavailable(err) {
		return w, err
	}
	if _, away := i.client.Version(ctx); away != nil {
		return nil, &containerdError{err.Error()}
	}
	return nil, err
}

// measuringSnapshotter is a snapshotter that measures the unpacked layers of a pull.
type measuringSnapshotter struct {
	snapshots.Snapshotter
	store  *Store
	client *containerd.Client
	pull   *pull

	mu     sync.Mutex
	active string // key of the snapshot into which a layer is being unpacked
}

// Prepare begins to unpack a layer.
func (w *measuringSnapshotter) Prepare(ctx context.Context, key, parent string, opts ...snapshots.Opt) ([]mount.Mount, error) {
	mounts, err := w.Snapshotter.Prepare(ctx, key, parent, opts...)
	if err == nil {
		w.setActive(key)
	}
	return mounts, err
}

// Commit completes a layer. It returns CodeInsufficient if the pull does not fit into the budget with this layer.
func (w *measuringSnapshotter) Commit(ctx context.Context, name, key string, opts ...snapshots.Opt) error {
	err := w.Snapshotter.Commit(ctx, name, key, opts...)
	w.setActive("")
	if err != nil {
		return err
	}
	used, err := w.Usage(ctx, name)
	if err != nil {
		return err
	}
	w.store.mu.Lock()
	delete(w.pull.parts, activePart)
	maps.Copy(w.pull.parts, parts{snapshotPart(name): used.Size})
	w.store.mu.Unlock()
	return w.store.makeRoom(ctx, w.client, w.pull)
}

// Remove removes an incomplete layer.
func (w *measuringSnapshotter) Remove(ctx context.Context, key string) error {
	w.setActive("")
	return w.Snapshotter.Remove(ctx, key)
}

func (w *measuringSnapshotter) setActive(key string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = key
}
