package container

import (
	"context"
	"encoding/json"
	"sync"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// imageInfo contains the data that a container needs about its image.
type imageInfo struct {
	chain  string // chain id of the unpacked layers, which is the key of the containers' parent snapshot
	config ocispec.ImageConfig
}

// images caches the images of started containers. Each image's name contains a digest, so cached entries never
// become outdated.
type images struct {
	mu   sync.Mutex
	info map[string]*imageInfo
}

// The maximum number of images in the cache, and the maximum size of an image's configuration
// in bytes.
const (
	maxImages = 256
	maxConfig = 1 << 20
)

func newImages() *images { return &images{info: map[string]*imageInfo{}} }

// get returns an image from containerd. It returns CodeNotFound if the image does not exist.
func (i *images) get(ctx context.Context, c *containerd.Client, name string) (*imageInfo, error) {
	i.mu.Lock()
	info := i.info[name]
	i.mu.Unlock()
	if info != nil {
		return info, nil
	}
	info, err := readImage(ctx, c, name)
	if err != nil {
		return nil, err
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.info) >= maxImages {
		clear(i.info) // reading the images again is cheap
	}
	i.info[name] = info
	return info, nil
}

// forget drops a removed image from the cache.
func (i *images) forget(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.info, name)
}

func errNoImage(name string) error {
	return bourse.Errorf(bourse.CodeNotFound, "image %s not found on this host", bourse.Quoted(name))
}

// readImage reads an image's configuration for this platform.
func readImage(ctx context.Context, c *containerd.Client, name string) (*imageInfo, error) {
	image, err := c.GetImage(ctx, name)
	if isNotFound(err) {
		return nil, errNoImage(name)
	}
	if err != nil {
		return nil, withCode(ctx, err)
	}
	desc, err := image.Config(ctx)
	if isNotFound(err) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s has no variant for this host's platform: %w", bourse.Quoted(name), err)
	}
	if err != nil {
		return nil, withCode(ctx, err)
	}
	if desc.Size > maxConfig {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s: a configuration of %d bytes is too large", bourse.Quoted(name), desc.Size)
	}
	blob, err := content.ReadBlob(ctx, image.ContentStore(), desc)
	if err != nil {
		return nil, withCode(ctx, err)
	}
	return parseImage(name, blob)
}

// parseImage parses a configuration.
func parseImage(name string, blob []byte) (*imageInfo, error) {
	var config ocispec.Image
	if err := json.Unmarshal(blob, &config); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s: invalid configuration: %w", bourse.Quoted(name), err)
	}
	if len(config.RootFS.DiffIDs) == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s has no layers", bourse.Quoted(name))
	}
	return &imageInfo{chain: identity.ChainID(config.RootFS.DiffIDs).String(), config: config.Config}, nil
}
