package image

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// Limits on the data that the worker accepts from a registry.
const (
	maxManifest  = 4 << 20 // size of a manifest, index or configuration in bytes; the OCI distribution specification recommends 4 MiB
	maxLayers    = 256     // overlayfs supports fewer than 500, and Docker creates at most 127
	maxManifests = 1024    // manifests in an index
	maxBytes     = 1 << 50 // total size of all layers, so that sums do not overflow
)

// document is a manifest or an index.
type document struct {
	MediaType string               `json:"mediaType"`
	Manifests []ocispec.Descriptor `json:"manifests"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	FSLayers  json.RawMessage      `json:"fsLayers"` // only in manifests with Docker's schema 1: the layers
}

func (d document) isIndex() bool { return d.Config == nil }

// parseDocument parses and validates a manifest or an index. The result contains only valid digests and sizes, and at
// most maxLayers layers, all with supported types. URLs in descriptors are removed.
func parseDocument(raw []byte) (document, error) {
	var d document
	if err := json.Unmarshal(raw, &d); err != nil {
		return document{}, bourse.Errorf(bourse.CodeInvalid, "the manifest cannot be read: %w", err)
	}
	err := d.check()
	return d, err
}

func (d *document) check() error {
	switch {
	case d.FSLayers != nil:
		return bourse.Errorf(bourse.CodeInvalid, "the image's manifest has Docker's schema 1, which is not supported: push the image again")
	case d.Config != nil && d.Manifests != nil:
		// Different programs could interpret such a document as different images.
		return bourse.Errorf(bourse.CodeInvalid, "the manifest is also an index")
	case d.Config == nil && len(d.Layers) > 0, d.Config == nil && d.Manifests == nil:
		return bourse.Errorf(bourse.CodeInvalid, "the manifest is neither an image manifest nor an index")
	case len(d.Manifests) > maxManifests:
		return bourse.Errorf(bourse.CodeInvalid, "the index has %d images, but at most %d are supported", len(d.Manifests), maxManifests)
	case len(d.Layers) > maxLayers:
		return bourse.Errorf(bourse.CodeInvalid, "the image has %d layers, but at most %d are supported", len(d.Layers), maxLayers)
	}
	for i := range d.Manifests {
		if err := checkDescriptor(&d.Manifests[i], maxManifest); err != nil {
			return err
		}
	}
	if d.Config == nil {
		return nil
	}
	if err := checkDescriptor(d.Config, maxManifest); err != nil {
		return err
	}
	if !images.IsConfigType(d.Config.MediaType) {
		return bourse.Errorf(bourse.CodeInvalid, "the image is not a container image: its configuration has type %q", d.Config.MediaType)
	}
	for i := range d.Layers {
		if err := checkDescriptor(&d.Layers[i], maxBytes/maxLayers); err != nil {
			return err
		}
		if !images.IsLayerType(d.Layers[i].MediaType) {
			return bourse.Errorf(bourse.CodeInvalid, "layer %s has type %q, which is not supported", d.Layers[i].Digest, d.Layers[i].MediaType)
		}
	}
	return nil
}

// checkDescriptor validates a blob's descriptor in a manifest. It removes fields that a hostile registry could misuse:
// URLs, embedded data, and annotations, which would become snapshot labels.
func checkDescriptor(d *ocispec.Descriptor, most int64) error {
	if err := d.Digest.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "the manifest has a blob with invalid digest %q: %w", d.Digest, err)
	}
	if d.Size <= 0 || d.Size > most {
		return bourse.Errorf(bourse.CodeInvalid, "the manifest has an invalid size for blob %s: %d bytes", d.Digest, d.Size)
	}
	*d = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Platform: d.Platform}
	return nil
}

// choose returns the descriptor of the image in the index that best matches the host's platform.
func choose(index document, host platforms.MatchComparer) (ocispec.Descriptor, error) {
	var fit []ocispec.Descriptor
	var has []string
	for _, m := range index.Manifests {
		switch {
		case m.Platform == nil || m.Platform.OS == "unknown": // signatures and attestations have no platform
			continue
		case host.Match(*m.Platform) && !images.IsIndexType(m.MediaType):
			fit = append(fit, m)
		}
		has = append(has, platforms.Format(*m.Platform))
	}
	if len(fit) == 0 {
		slices.Sort(has)
		return ocispec.Descriptor{}, bourse.Errorf(bourse.CodeInvalid,
			"the image is not available for this host's platform, only for: %s", strings.Join(slices.Compact(has), ", "))
	}
	return slices.MinFunc(fit, func(a, b ocispec.Descriptor) int {
		switch {
		case host.Less(*a.Platform, *b.Platform):
			return -1
		case host.Less(*b.Platform, *a.Platform):
			return 1
		}
		return 0
	}), nil
}

// imageConfig contains the parts of an image's configuration that the store needs.
type imageConfig struct {
	ocispec.Platform
	RootFS ocispec.RootFS `json:"rootfs"`
	Config struct {
		Labels map[string]string `json:"Labels"`
	} `json:"config"`
}

// parseConfig parses an image's configuration. It returns an error unless the configuration has the given number of
// layers and the image is for the host's platform.
func parseConfig(raw []byte, layers int, host platforms.Matcher) (imageConfig, error) {
	var c imageConfig
	if err := json.Unmarshal(raw, &c); err != nil {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's configuration cannot be read: %w", err)
	}
	if len(c.RootFS.DiffIDs) != layers {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's manifest has %d layers, but its configuration has %d", layers, len(c.RootFS.DiffIDs))
	}
	for _, id := range c.RootFS.DiffIDs {
		if err := id.Validate(); err != nil {
			return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's configuration has an invalid layer id %q: %w", id, err)
		}
	}
	// Accept images without a platform, because some builders omit it.
	if (c.OS != "" || c.Architecture != "") && !host.Match(platforms.Normalize(c.Platform)) {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image is for platform %s, not for this host", platforms.Format(c.Platform))
	}
	return c, nil
}

// chains returns the names of the layers' snapshots, which are the layers' chain ids.
func (c imageConfig) chains() []string {
	ids := identity.ChainIDs(slices.Clone(c.RootFS.DiffIDs))
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// labels returns the image's labels, or none if they are too large to be included in every
// machine's record.
func (c imageConfig) labels() map[string]string {
	const most = 4 << 10
	size := 0
	for k, v := range c.Config.Labels {
		size += len(k) + len(v)
	}
	if size > most {
		return nil
	}
	return c.Config.Labels
}

// verify returns CodeInvalid unless raw has the digest in desc.
func verify(raw []byte, desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "digest %q: %w", desc.Digest, err)
	}
	if got := desc.Digest.Algorithm().FromBytes(raw); got != desc.Digest {
		return bourse.Errorf(bourse.CodeInvalid, "the registry sent a blob whose digest is not %s", desc.Digest)
	}
	return nil
}

// hostPlatform returns a matcher for images that run on this host. It always matches Linux
// images, whatever system the program was built for.
func hostPlatform() platforms.MatchComparer {
	spec := platforms.DefaultSpec()
	spec.OS, spec.OSVersion, spec.OSFeatures = "linux", "", nil
	return platforms.Only(spec)
}

// newDigest parses and validates a digest from an image's name.
func newDigest(s string) (digest.Digest, error) {
	d, err := digest.Parse(s)
	if err != nil {
		return "", fmt.Errorf("digest %q: %w", s, err)
	}
	return d, nil
}
