package registrytest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"runtime"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// Image describes an image.
type Image struct {
	Layers []Layer
	Config ocispec.ImageConfig
	Arch   string // default: this host's
	OS     string // default "linux"

	// Bomb adds a layer that contains one file of this many zero bytes, rounded up to whole MiB. The compressed layer
	// is about a thousandth of that size. The digest in the configuration does not match the unpacked layer.
	Bomb int64

	// Edit changes the manifest before it is pushed, to make it invalid.
	Edit func(*ocispec.Manifest)
	// EditConfig changes the configuration before it is pushed.
	EditConfig func(*ocispec.Image)
}

// Built is an image as a registry stores it.
type Built struct {
	Manifest ocispec.Descriptor
	Config   ocispec.Descriptor
	Layers   []ocispec.Descriptor
	Blobs    map[digest.Digest][]byte // manifest, configuration and layers
}

// Bytes returns the total size of the configuration and the distinct layers. The first pull of the image to a host
// transfers this number of bytes, plus the manifest.
func (b Built) Bytes() int64 {
	sizes := map[digest.Digest]int64{b.Config.Digest: b.Config.Size}
	for _, l := range b.Layers {
		sizes[l.Digest] = l.Size
	}
	var sum int64
	for _, size := range sizes {
		sum += size
	}
	return sum
}

// Build builds an image. Parts with the same contents have the same digest.
func Build(tb testing.TB, image Image) Built {
	tb.Helper()
	out := Built{Blobs: map[digest.Digest][]byte{}}
	config := ocispec.Image{
		Platform: ocispec.Platform{Architecture: image.Arch, OS: image.OS},
		Config:   image.Config,
		RootFS:   ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{}},
	}
	if config.Architecture == "" {
		config.Architecture = runtime.GOARCH
	}
	if config.OS == "" {
		config.OS = "linux"
	}
	for _, layer := range image.Layers {
		data, err := layer.tar()
		if err != nil {
			tb.Fatal(err)
		}
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(data))
		out.Layers = append(out.Layers, out.add(ocispec.MediaTypeImageLayerGzip, compress(tb, data)))
	}
	if image.Bomb > 0 {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromString("bomb"))
		out.Layers = append(out.Layers, out.add(ocispec.MediaTypeImageLayerGzip, bomb(tb, image.Bomb)))
	}
	if image.EditConfig != nil {
		image.EditConfig(&config)
	}
	out.Config = out.addJSON(tb, ocispec.MediaTypeImageConfig, config)
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    out.Config,
		Layers:    out.Layers,
	}
	if image.Edit != nil {
		image.Edit(&manifest)
	}
	out.Manifest = out.addJSON(tb, ocispec.MediaTypeImageManifest, manifest)
	return out
}

// platform returns the platform that an index lists for the image.
func (image Image) platform() *ocispec.Platform {
	p := &ocispec.Platform{Architecture: image.Arch, OS: image.OS}
	if p.Architecture == "" {
		p.Architecture = runtime.GOARCH
	}
	if p.OS == "" {
		p.OS = "linux"
	}
	return p
}

// bomb returns a compressed layer whose only file consists of zero bytes. The file's length is size, rounded up to
// whole MiB. Because a gzip file may consist of several streams, bomb compresses only one MiB and repeats the result.
func bomb(tb testing.TB, size int64) []byte {
	tb.Helper()
	const block = 1 << 20
	n := (size + block - 1) / block
	var head bytes.Buffer
	w := tar.NewWriter(&head)
	if err := w.WriteHeader(&tar.Header{Name: "zeros", Mode: 0o644, Typeflag: tar.TypeReg, Size: n * block}); err != nil {
		tb.Fatal(err)
	}
	zeros := compress(tb, make([]byte, block))
	return append(compress(tb, head.Bytes()), bytes.Repeat(zeros, int(n)+1)...) // the additional block of zeros ends the archive
}

func compress(tb testing.TB, data []byte) []byte {
	tb.Helper()
	var buf bytes.Buffer
	w, err := gzip.NewWriterLevel(&buf, gzip.BestSpeed)
	if err != nil {
		tb.Fatal(err)
	}
	if _, err := w.Write(data); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return buf.Bytes()
}

func (b *Built) add(mediaType string, data []byte) ocispec.Descriptor {
	d := digest.FromBytes(data)
	b.Blobs[d] = data
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}
}

func (b *Built) addJSON(tb testing.TB, mediaType string, value any) ocispec.Descriptor {
	tb.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		tb.Fatal(err)
	}
	return b.add(mediaType, data)
}
