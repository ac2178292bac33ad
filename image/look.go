package image

import (
	"context"
	"io"

	"github.com/containerd/containerd/v2/core/remotes"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// blobReader is a function that reads a small blob from containerd. It returns nil if containerd does not have the
// blob.
type blobReader func(context.Context, ocispec.Descriptor) ([]byte, error)

// outline contains an image's manifest and, if there is one, its index, but not the configuration or the layers.
type outline struct {
	index    *stored // nil if the name refers to the manifest itself
	manifest stored
	document document // the decoded manifest
}

// stored is a small blob with its descriptor and contents.
type stored struct {
	desc ocispec.Descriptor
	raw  []byte
}

// root returns the descriptor of the index or manifest that the image's digest refers to.
func (o outline) root() ocispec.Descriptor {
	if o.index != nil {
		return o.index.desc
	}
	return o.manifest.desc
}

// needs returns the image's configuration and layers, without duplicates.
func (o outline) needs() parts {
	out := parts{o.document.Config.Digest.String(): o.document.Config.Size}
	for _, l := range o.document.Layers {
		out[l.Digest.String()] = l.Size
	}
	return out
}

// readOutline reads an image's index, if it has one, and the manifest for this host's platform. It records the parts
// that a pull would fetch. If blobs is nil, readOutline ignores copies in containerd, and requests the index and the
// manifest from the registry with the tenant's credentials. The registry thus refuses a tenant that merely knows the
// digest of another organization's image.
func (s *Store) readOutline(ctx context.Context, blobs blobReader, who tenant, ref bourse.ImageRef, desc ocispec.Descriptor) (outline, parts, error) {
	var o outline
	for depth := 0; ; depth++ {
		raw, err := s.read(ctx, blobs, who, ref, desc)
		if err != nil {
			return outline{}, nil, err
		}
		d, err := parseDocument(raw)
		if err != nil {
			return outline{}, nil, err
		}
		desc.Size = int64(len(raw))
		if !d.isIndex() {
			desc.MediaType = manifestType(desc.MediaType)
			o.manifest, o.document = stored{desc, raw}, d
			break
		}
		if depth > 0 {
			return outline{}, nil, bourse.Errorf(bourse.CodeInvalid, "image %s: nested indexes are not supported", ref.String())
		}
		desc.MediaType = indexType(desc.MediaType)
		o.index = &stored{desc, raw}
		if desc, err = choose(d, s.platform); err != nil {
			return outline{}, nil, err
		}
	}
	needs := o.needs()
	s.mu.Lock()
	s.memory.catalog.setParts(recordName(ref), needs)
	s.mu.Unlock()
	return o, needs, nil
}

// read reads an index, manifest or configuration. It tries three sources: blobs, unless it is nil; the manifests that
// the registry has recently sent to this tenant; and the registry itself.
func (s *Store) read(ctx context.Context, blobs blobReader, who tenant, ref bourse.ImageRef, desc ocispec.Descriptor) ([]byte, error) {
	if blobs != nil {
		raw, err := blobs(ctx, desc)
		if err != nil || raw != nil {
			return raw, err
		}
	}
	key := manifestKey{who, ref.Registry, ref.Repository, desc.Digest}
	if raw := s.manifests.get(key); raw != nil {
		return raw, nil
	}
	raw, err := s.fetch(ctx, s.hosts.resolver(who), ref, desc)
	if err != nil {
		return nil, err
	}
	if err := verify(raw, desc); err != nil {
		return nil, err
	}
	s.manifests.put(key, raw)
	return raw, nil
}

// fetch requests a small blob from its registry. The whole request may take at most Config.Stall.
func (s *Store) fetch(ctx context.Context, from remotes.Resolver, ref bourse.ImageRef, desc ocispec.Descriptor) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Stall)
	defer cancel()
	name := recordName(ref)
	if desc.MediaType == "" { // the URL of the request depends on the media type
		_, found, err := from.Resolve(ctx, name)
		if err != nil {
			return nil, &registryError{err}
		}
		desc = found
	}
	fetcher, err := from.Fetcher(ctx, name)
	if err != nil {
		return nil, &registryError{err}
	}
	body, err := fetcher.Fetch(ctx, desc)
	if err != nil {
		return nil, &registryError{err}
	}
	defer body.Close()
	raw, err := io.ReadAll(io.LimitReader(body, maxManifest+1))
	if err != nil {
		return nil, &registryError{err}
	}
	if len(raw) > maxManifest {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s: %s is longer than %d bytes", ref.String(), desc.Digest, maxManifest)
	}
	return raw, nil
}
