package image

import (
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Limits of manifestCache. Together, they limit its memory usage to half a MiB.
const (
	maxCached     = 32
	maxCachedSize = 16 << 10
)

// manifestCache caches small manifests. When an image is pulled, the manifest that was read when its name was resolved
// is usually still in the cache, so the pull need not request it again. The zero value is an empty cache.
type manifestCache struct {
	mu  sync.Mutex
	raw map[manifestKey][]byte
}

// manifestKey identifies a manifest by its repository, its digest, and the tenant to which the registry sent it.
type manifestKey struct {
	who                  tenant
	registry, repository string
	digest               digest.Digest
}

func (c *manifestCache) get(k manifestKey) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.raw[k]
}

func (c *manifestCache) put(k manifestKey, raw []byte) {
	if len(raw) > maxCachedSize {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.raw == nil {
		c.raw = map[manifestKey][]byte{}
	}
	remember(c.raw, maxCached, k, raw)
}

// manifestType returns the media type of a manifest, given the type that the registry sent. If that type is empty or
// invalid, manifestType returns the default. indexType does the same for an index.
func manifestType(said string) string {
	if images.IsManifestType(said) {
		return said
	}
	return ocispec.MediaTypeImageManifest
}

func indexType(said string) string {
	if images.IsIndexType(said) {
		return said
	}
	return ocispec.MediaTypeImageIndex
}
