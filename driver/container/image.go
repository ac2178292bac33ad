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

// imageInfo is what a container needs to know of its image.
type imageInfo struct {
	chain  string // of its unpacked layers: the parent of containers' snapshots
	config ocispec.ImageConfig
}

// images remembers images that containers were started from. A name has a
// digest, so what it stands for never changes.
type images struct {
	mu   sync.Mutex
	info map[string]*imageInfo
}

// Bounds of what is remembered, and of what an image may say.
const (
	mostImages = 256
	mostConfig = 1 << 20
)

func newImages() *images { return &images{info: map[string]*imageInfo{}} }

// get returns an image of containerd's. CodeNotFound when it is not there.
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
	if len(i.info) >= mostImages {
		clear(i.info) // it is cheap to read again
	}
	i.info[name] = info
	return info, nil
}

// forget drops an image that turned out not to be there any more.
func (i *images) forget(name string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.info, name)
}

func errNoImage(name string) error {
	return bourse.Errorf(bourse.CodeNotFound, "image %s is not on this host", bourse.Quoted(name))
}

// readImage reads an image's configuration for this platform.
func readImage(ctx context.Context, c *containerd.Client, name string) (*imageInfo, error) {
	image, err := c.GetImage(ctx, name)
	if isNotFound(err) {
		return nil, errNoImage(name)
	}
	if err != nil {
		return nil, coded(ctx, err)
	}
	desc, err := image.Config(ctx)
	if isNotFound(err) {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s has no variant for this host's platform: %w", bourse.Quoted(name), err)
	}
	if err != nil {
		return nil, coded(ctx, err)
	}
	if desc.Size > mostConfig {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s: a configuration of %d bytes is too large", bourse.Quoted(name), desc.Size)
	}
	blob, err := content.ReadBlob(ctx, image.ContentStore(), desc)
	if err != nil {
		return nil, coded(ctx, err)
	}
	return parseImage(name, blob)
}

// parseImage reads a configuration blob.
func parseImage(name string, blob []byte) (*imageInfo, error) {
	var config ocispec.Image
	if err := json.Unmarshal(blob, &config); err != nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s: its configuration cannot be read: %w", bourse.Quoted(name), err)
	}
	if len(config.RootFS.DiffIDs) == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "image %s has no layers", bourse.Quoted(name))
	}
	return &imageInfo{chain: identity.ChainID(config.RootFS.DiffIDs).String(), config: config.Config}, nil
}
