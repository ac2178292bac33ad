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

// Bounds on what a registry may make us read into memory and work through.
const (
	maxManifest  = 4 << 20 // bytes of a manifest, index or configuration; the OCI distribution specification asks for 4 MiB
	maxLayers    = 256     // overlayfs takes fewer than 500, docker made at most 127
	maxManifests = 1024    // in an index
	maxBytes     = 1 << 50 // of all layers, so that sums do not overflow
)

// document is a manifest or an index.
type document struct {
	MediaType string               `json:"mediaType"`
	Manifests []ocispec.Descriptor `json:"manifests"`
	Config    *ocispec.Descriptor  `json:"config"`
	Layers    []ocispec.Descriptor `json:"layers"`
	FSLayers  json.RawMessage      `json:"fsLayers"` // of docker's first schema
}

func (d document) isIndex() bool { return d.Config == nil }

// parseDocument reads a manifest or an index. The result has valid digests
// and sizes, at most maxLayers layers that can be unpacked, and nothing that
// would make us fetch from elsewhere.
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
		return bourse.Errorf(bourse.CodeInvalid, "the image's manifest has docker's first schema, which is no longer supported: push it again")
	case d.Config != nil && d.Manifests != nil:
		return bourse.Errorf(bourse.CodeInvalid, "the manifest claims to be an index as well") // read as either, it would be two images
	case d.Config == nil && len(d.Layers) > 0, d.Config == nil && d.Manifests == nil:
		return bourse.Errorf(bourse.CodeInvalid, "the manifest is neither of an image nor an index")
	case len(d.Manifests) > maxManifests:
		return bourse.Errorf(bourse.CodeInvalid, "the index has %d images, at most %d are read", len(d.Manifests), maxManifests)
	case len(d.Layers) > maxLayers:
		return bourse.Errorf(bourse.CodeInvalid, "the image has %d layers, at most %d can be used", len(d.Layers), maxLayers)
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
		return bourse.Errorf(bourse.CodeInvalid, "the image is not one of a container: its configuration is %q", d.Config.MediaType)
	}
	for i := range d.Layers {
		if err := checkDescriptor(&d.Layers[i], maxBytes/maxLayers); err != nil {
			return err
		}
		if !images.IsLayerType(d.Layers[i].MediaType) {
			return bourse.Errorf(bourse.CodeInvalid, "layer %s is %q, which cannot be unpacked", d.Layers[i].Digest, d.Layers[i].MediaType)
		}
	}
	return nil
}

// checkDescriptor checks a manifest's descriptor of a blob, and removes from it
// what only a hostile one would use: addresses to fetch it from, its bytes, and
// annotations, which become labels of snapshots.
func checkDescriptor(d *ocispec.Descriptor, most int64) error {
	if err := d.Digest.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "the manifest names a blob %q: %w", d.Digest, err)
	}
	if d.Size <= 0 || d.Size > most {
		return bourse.Errorf(bourse.CodeInvalid, "the manifest gives blob %s %d bytes", d.Digest, d.Size)
	}
	*d = ocispec.Descriptor{MediaType: d.MediaType, Digest: d.Digest, Size: d.Size, Platform: d.Platform}
	return nil
}

// choose returns the image of an index that fits a host best.
func choose(index document, host platforms.MatchComparer) (ocispec.Descriptor, error) {
	var fit []ocispec.Descriptor
	var has []string
	for _, m := range index.Manifests {
		switch {
		case m.Platform == nil || m.Platform.OS == "unknown": // signatures and attestations
			continue
		case host.Match(*m.Platform) && !images.IsIndexType(m.MediaType):
			fit = append(fit, m)
		}
		has = append(has, platforms.Format(*m.Platform))
	}
	if len(fit) == 0 {
		slices.Sort(has)
		return ocispec.Descriptor{}, bourse.Errorf(bourse.CodeInvalid,
			"the image has none for this host's platform, only for: %s", strings.Join(slices.Compact(has), ", "))
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

// imageConfig is what the store needs of an image's configuration.
type imageConfig struct {
	ocispec.Platform
	RootFS ocispec.RootFS `json:"rootfs"`
	Config struct {
		Labels map[string]string `json:"Labels"`
	} `json:"config"`
}

// parseConfig reads the configuration of an image of so many layers and checks
// that it is for this host.
func parseConfig(raw []byte, layers int, host platforms.Matcher) (imageConfig, error) {
	var c imageConfig
	if err := json.Unmarshal(raw, &c); err != nil {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's configuration cannot be read: %w", err)
	}
	if len(c.RootFS.DiffIDs) != layers {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's manifest has %d layers, its configuration %d", layers, len(c.RootFS.DiffIDs))
	}
	for _, id := range c.RootFS.DiffIDs {
		if err := id.Validate(); err != nil {
			return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image's configuration names a layer %q: %w", id, err)
		}
	}
	// Some builders leave the platform out.
	if (c.OS != "" || c.Architecture != "") && !host.Match(platforms.Normalize(c.Platform)) {
		return imageConfig{}, bourse.Errorf(bourse.CodeInvalid, "the image is for platform %s, not for this host's", platforms.Format(c.Platform))
	}
	return c, nil
}

// chains returns the names of the snapshots that the layers are unpacked to.
func (c imageConfig) chains() []string {
	ids := identity.ChainIDs(slices.Clone(c.RootFS.DiffIDs))
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// labels returns the image's labels if they are small enough to be passed
// around with every machine.
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

// verify checks that bytes are those that a descriptor names.
func verify(raw []byte, desc ocispec.Descriptor) error {
	if err := desc.Digest.Validate(); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "digest %q: %w", desc.Digest, err)
	}
	if got := desc.Digest.Algorithm().FromBytes(raw); got != desc.Digest {
		return bourse.Errorf(bourse.CodeInvalid, "the registry sent something else than %s", desc.Digest)
	}
	return nil
}

// hostPlatform matches what runs on this host. Images are for Linux on any system
// that the client was built for.
func hostPlatform() platforms.MatchComparer {
	spec := platforms.DefaultSpec()
	spec.OS, spec.OSVersion, spec.OSFeatures = "linux", "", nil
	return platforms.Only(spec)
}

// newDigest checks a digest that came in a name.
func newDigest(s string) (digest.Digest, error) {
	d, err := digest.Parse(s)
	if err != nil {
		return "", fmt.Errorf("digest %q: %w", s, err)
	}
	return d, nil
}
