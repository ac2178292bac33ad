package containerdtest

import (
	"bytes"
	"context"
	"fmt"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Import imports an image into a namespace and unpacks it, as an image store does after a pull.
// It returns the image's name, "repository@sha256:…". Importing an existing image is not an error.
func (s *Server) Import(tb testing.TB, namespace, repository string, image Image) string {
	tb.Helper()
	c := s.Client(tb, namespace)
	ref := repository + "@" + image.Manifest.Digest.String()
	if err := load(tb.Context(), c, ref, image); err != nil {
		tb.Fatalf("import %s: %v", ref, err)
	}
	return ref
}

func load(ctx context.Context, c *containerd.Client, ref string, image Image) error {
	// Without a lease, containerd would collect blobs that no image record refers to yet.
	ctx, done, err := c.WithLease(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }() // the lease expires anyway
	below := map[string]string{
		"containerd.io/gc.ref.content.config": image.Config.Digest.String(),
		"containerd.io/gc.ref.content.l.0":    image.Layer.Digest.String(),
	}
	for _, blob := range []struct {
		desc   ocispec.Descriptor
		labels map[string]string
	}{{image.Layer, nil}, {image.Config, nil}, {image.Manifest, below}} {
		err := content.WriteBlob(ctx, c.ContentStore(), blob.desc.Digest.String(),
			bytes.NewReader(image.Blobs[blob.desc.Digest]), blob.desc, content.WithLabels(blob.labels))
		if err != nil {
			return fmt.Errorf("blob %s: %w", blob.desc.Digest, err)
		}
	}
	record, err := c.ImageService().Create(ctx, images.Image{Name: ref, Target: image.Manifest})
	if errdefs.IsAlreadyExists(err) {
		record, err = c.ImageService().Get(ctx, ref)
	}
	if err != nil {
		return err
	}
	return containerd.NewImage(c, record).Unpack(ctx, snapshotter)
}
