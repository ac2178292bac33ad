package image

import (
	"context"
	"fmt"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// load updates the in-memory state to match the images in containerd.
func (s *Store) load(ctx context.Context, c *containerd.Client) error {
	for {
		s.mu.Lock()
		change := s.memory.change
		s.mu.Unlock()
		list, err := c.ImageService().List(ctx, `labels."`+labelStore+`"==1`)
		if err != nil {
			return fmt.Errorf("images: %w", err)
		}
		found, err := s.inspectNew(ctx, c, list)
		if err != nil {
			return err
		}
		if s.replace(list, found, change) {
			return nil
		}
	}
}

// inspectNew reads the images in list that are not in memory yet, and returns their records.
func (s *Store) inspectNew(ctx context.Context, c *containerd.Client, list []images.Image) ([]*record, error) {
	var out []*record
	for _, image := range list {
		s.mu.Lock()
		_, known := s.memory.catalog.records[image.Name]
		s.mu.Unlock()
		if known {
			continue
		}
		r, err := s.inspect(ctx, c, image)
		switch {
		case errdefs.IsNotFound(err), bourse.CodeOf(err) == bourse.CodeInvalid:
			// Part of the image is missing or invalid, so treat the image as not pulled. A pull will repair it.
			s.config.Log.Warn("image incomplete", "image", image.Name, "err", err)
		case err != nil:
			return nil, fmt.Errorf("image %s: %w", image.Name, err)
		default:
			out = append(out, r)
		}
	}
	return out, nil
}

// replace drops the images that are not in list, which was read from containerd, and adds those in found. change is the
// value of state.change before list was read. If state.change has changed since then, replace does nothing and returns
// false.
func (s *Store) replace(list []images.Image, found []*record, change uint64) bool {
	listed := map[string]bool{}
	for _, image := range list {
		listed[image.Name] = true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.memory.change != change {
		return false
	}
	s.memory.loaded = true
	changed := len(found) > 0
	for name := range s.memory.catalog.records {
		if !listed[name] {
			s.config.Log.Info("image removed by another program", "image", name)
			s.memory.catalog.drop(name)
			changed = true
		}
	}
	for _, r := range found {
		s.memory.catalog.add(r)
	}
	if changed {
		s.notify()
	}
	return true
}

// inspect reads an image's parts from containerd and checks that the image is unpacked. It
// returns containerd's "not found" error if anything is missing.
func (s *Store) inspect(ctx context.Context, c *containerd.Client, image images.Image) (*record, error) {
	ref, err := parseName(image.Name)
	if err != nil {
		return nil, err
	}
	if ref.Digest == "" || ref.Tag != "" || ref.Digest != image.Target.Digest.String() {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s: its record has digest %s", image.Name, image.Target.Digest)
	}
	blobs := requirePresent(reader(c))
	o, needs, err := s.readOutline(ctx, blobs, "", ref, image.Target)
	if err != nil {
		return nil, err
	}
	raw, err := blobs(ctx, *o.document.Config)
	if err != nil {
		return nil, err
	}
	config, err := parseConfig(raw, len(o.document.Layers), s.platform)
	if err != nil {
		return nil, err
	}
	r := &record{name: image.Name, ref: ref, bytes: needs.sum(), parts: parts{}}
	r.ref.Labels = config.labels()
	r.read(image.Labels, time.Now())
	r.parts[o.manifest.desc.Digest.String()] = o.manifest.desc.Size
	r.parts[o.root().Digest.String()] = o.root().Size
	for d, size := range needs {
		r.needs = append(r.needs, d)
		r.parts[d] = size
	}
	for _, chain := range config.chains() {
		used, err := c.SnapshotService(s.config.Snapshotter).Usage(ctx, chain)
		if err != nil {
			return nil, err
		}
		r.parts[snapshotPart(chain)] = used.Size
	}
	return r, nil
}

// requirePresent returns a blobReader that fails if containerd does not have a blob. This prevents the caller from
// fetching the blob from a registry.
func requirePresent(blobs blobReader) blobReader {
	return func(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
		raw, err := blobs(ctx, desc)
		if err == nil && raw == nil {
			err = fmt.Errorf("%s: %w", desc.Digest, errdefs.ErrNotFound)
		}
		return raw, err
	}
}
