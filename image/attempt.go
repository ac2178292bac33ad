package image

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// Prefixes of the labels that tell containerd's garbage collector which objects a blob refers to.
const (
	labelGCContent  = "containerd.io/gc.ref.content."
	labelGCSnapshot = "containerd.io/gc.ref.snapshot."
)

// attempt tries once to pull an image: it takes a lease, downloads and unpacks the image, and writes the image's
// record. Each step reuses the results of earlier attempts.
func (s *Store) attempt(ctx context.Context, p *pull) (bourse.Image, error) {
	ctx, c, err := s.containerd(ctx)
	if err != nil {
		return bourse.Image{}, err
	}
	ctx, err = s.takeLease(ctx, c, p)
	if err != nil {
		return bourse.Image{}, err
	}
	blobs, who := reader(c), s.hosts.tenantOf(p.org, p.ref.Registry)
	o, needs, err := s.readOutline(ctx, nil, who, p.ref, ocispec.Descriptor{Digest: digest.Digest(p.ref.Digest)})
	if err != nil {
		return bourse.Image{}, err
	}
	p.total.Store(needs.sum())
	p.enter(statusPulling)
	s.addParts(p, needs)
	if err := s.makeRoom(ctx, c, p); err != nil {
		return bourse.Image{}, err
	}
	config, err := s.describe(ctx, c, blobs, who, p, o)
	if err != nil {
		return bourse.Image{}, err
	}
	if err := s.unpack(ctx, c, p, o, config); err != nil {
		return bourse.Image{}, err
	}
	return s.recordImage(ctx, c, who, p, o.root())
}

// addParts adds parts to those that are known to occupy or need disk space for a pull, so that they count toward the
// budget.
func (s *Store) addParts(p *pull, more parts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(p.parts, more)
}

// reader returns a function that reads small blobs from containerd.
func reader(c *containerd.Client) blobReader {
	return func(ctx context.Context, desc ocispec.Descriptor) ([]byte, error) {
		info, err := c.ContentStore().Info(ctx, desc.Digest)
		switch {
		case errdefs.IsNotFound(err):
			return nil, nil
		case err != nil:
			return nil, fmt.Errorf("containerd: %w", err)
		case info.Size > maxManifest:
			return nil, bourse.Errorf(bourse.CodeInvalid, "%s is longer than %d bytes", desc.Digest, maxManifest)
		}
		desc.Size, desc.Data = info.Size, nil
		return content.ReadBlob(ctx, c.ContentStore(), desc)
	}
}

// describe stores the image's index, manifest and configuration in containerd, and returns the parsed
// configuration.
func (s *Store) describe(ctx context.Context, c *containerd.Client, blobs blobReader, who tenant, p *pull, o outline) (imageConfig, error) {
	b := stored{desc: *o.document.Config}
	var err error
	if b.raw, err = s.read(ctx, blobs, who, p.ref, b.desc); err != nil {
		return imageConfig{}, err
	}
	if int64(len(b.raw)) != b.desc.Size {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's configuration has %d bytes, but the manifest specifies %d", len(b.raw), b.desc.Size)
	}
	config, err := parseConfig(b.raw, len(o.document.Layers), s.platform)
	if err != nil {
		return imageConfig{}, err
	}
	below := map[string]string{labelGCContent + "config": b.desc.Digest.String()}
	for i, l := range o.document.Layers {
		below[labelGCContent+"l."+strconv.Itoa(i)] = l.Digest.String()
	}
	if err := put(ctx, c, b, nil); err != nil {
		return imageConfig{}, err
	}
	p.received.Add(b.desc.Size)
	if err := put(ctx, c, o.manifest, below); err != nil {
		return imageConfig{}, err
	}
	if o.index == nil {
		return config, nil
	}
	return config, put(ctx, c, *o.index, map[string]string{labelGCContent + "m.0": o.manifest.desc.Digest.String()})
}

// put stores a small blob with labels. If the blob already exists, put adds the labels, because
// another program may have stored the blob without them.
func put(ctx context.Context, c *containerd.Client, b stored, labels map[string]string) error {
	cs := &ingester{Store: c.ContentStore(), client: c}
	err := content.WriteBlob(ctx, cs, "bourse-"+b.desc.Digest.String(), bytes.NewReader(b.raw), b.desc, content.WithLabels(labels))
	if err != nil {
		return fmt.Errorf("store %s: %w", b.desc.Digest, err)
	}
	info, err := cs.Info(ctx, b.desc.Digest)
	if err != nil {
		return fmt.Errorf("store %s: %w", b.desc.Digest, err)
	}
	var lacks []string
	for k, v := range labels {
		if info.Labels[k] != v {
			lacks = append(lacks, "labels."+k)
		}
	}
	if len(lacks) == 0 {
		return nil
	}
	if _, err := cs.Update(ctx, content.Info{Digest: b.desc.Digest, Labels: labels}, lacks...); err != nil {
		return fmt.Errorf("label %s: %w", b.desc.Digest, err)
	}
	return nil
}

// recordImage records a pulled image in containerd and in memory. The record then protects the image's data from
// garbage collection, so that the pull's lease is no longer needed.
func (s *Store) recordImage(ctx context.Context, c *containerd.Client, who tenant, p *pull, root ocispec.Descriptor) (bourse.Image, error) {
	r := &record{name: recordName(p.ref), ref: p.ref, usedAt: time.Now()}
	r.ref.Tag = ""
	r.addTag(p.ref.Tag)
	s.mu.Lock()
	s.memory.catalog.recordAccess(r.name, who, r.usedAt)
	r.access = s.memory.catalog.tenants(r.name)
	s.mu.Unlock()
	record := images.Image{Name: r.name, Target: root, Labels: r.labels()}
	_, err := c.ImageService().Create(ctx, record)
	if errdefs.IsAlreadyExists(err) {
		record, err = renew(ctx, c, r, record)
	}
	if err != nil {
		return bourse.Image{}, fmt.Errorf("record: %w", err)
	}
	found, err := s.inspect(ctx, c, record)
	if err != nil {
		return bourse.Image{}, fmt.Errorf("record: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	tag := p.ref.Tag
	found.dropTag(tag)
	s.memory.catalog.add(found)
	s.memory.catalog.setTag(found, tag)
	s.memory.change++
	image := found.image()
	if tag != "" {
		image.Ref.Tag = tag
	}
	return image, nil
}

// renew updates a record that existed in containerd before the pull, and preserves the record's tags. A pull finds such
// a record if the store has not read it yet, or if the image's layers were lost.
func renew(ctx context.Context, c *containerd.Client, r *record, record images.Image) (images.Image, error) {
	old, err := c.ImageService().Get(ctx, record.Name)
	if err != nil {
		return record, err
	}
	tags, used, access := r.tags, r.usedAt, r.access
	r.tags = nil
	r.read(old.Labels, used)
	for _, tag := range tags {
		r.addTag(tag)
	}
	r.usedAt = used
	for who, at := range access {
		if r.access == nil {
			r.access = map[tenant]time.Time{}
		}
		r.access[who] = at
	}
	record.Labels = r.labels()
	return c.ImageService().Update(ctx, record, "target", "labels")
}
