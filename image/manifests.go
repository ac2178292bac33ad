package image

import (
	"sync"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Bounds of manifestCache: half a MiB.
const (
	maxCached     = 32
	maxCachedSize = 16 << 10
)

// manifestCache keeps the small manifests that were read last, from a name's
// resolution to the pull that follows. The zero value is empty.
type manifestCache struct {
	mu  sync.Mutex
	raw map[manifestKey][]byte
}

// manifestKey is the repository and digest of a manifest, and the asker that its
// registry sent it to.
type manifestKey struct {
	who                  asker
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

// manifestType and indexType return a media type that containerd accepts for the
// bytes: a registry may have sent any type, or none.
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
