package push

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/bourse-dev/bourse"
)

// choose returns the image of an archive that is meant: the one with that name, tag or
// digest, or for "" the only one.
func (u unpacked) choose(ctx context.Context, name string) (ocispec.Descriptor, error) {
	if u.index.Size > maxManifest {
		return ocispec.Descriptor{}, invalid("its index has %d bytes", u.index.Size)
	}
	raw, err := content.ReadBlob(ctx, u, u.index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return ocispec.Descriptor{}, invalid("its index: %w", err)
	}
	var found []ocispec.Descriptor
	var names []string
	for _, d := range index.Manifests {
		names = append(names, namesOf(d)...)
		fits := name == "" || slices.Contains(namesOf(d), name)
		if fits && !slices.ContainsFunc(found, func(x ocispec.Descriptor) bool { return x.Digest == d.Digest }) {
			found = append(found, d)
		}
	}
	switch {
	case len(index.Manifests) == 0:
		return ocispec.Descriptor{}, invalid("no image is in it")
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return ocispec.Descriptor{}, bourse.Errorf(bourse.CodeNotFound, "the archive has no image %s; it has %s", bourse.Quoted(name), list(names))
	}
	return ocispec.Descriptor{}, bourse.Errorf(bourse.CodeInvalid, "the archive has several images; name one of %s", list(names))
}

// namesOf returns what an image of an archive may be called by: its names and its digest.
func namesOf(d ocispec.Descriptor) []string {
	var out []string
	for _, key := range []string{images.AnnotationImageName, ocispec.AnnotationRefName} {
		if name := d.Annotations[key]; name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return append(out, d.Digest.String())
}

// list shows names, not all of very many.
func list(names []string) string {
	const most = 12
	slices.Sort(names)
	names = slices.Compact(names)
	rest := ""
	if len(names) > most {
		names, rest = names[:most], ", …"
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = bourse.Quoted(n)
	}
	return strings.Join(quoted, ", ") + rest
}

// verify follows an image to its last layer and returns the bytes that it has of each
// part. It reports what the archive lacks, and what is larger than it may be.
func (u unpacked) verify(ctx context.Context, root ocispec.Descriptor, bound limits) (map[digest.Digest]int64, error) {
	if !isManifest(root) {
		return nil, invalid("what its index names has media type %s", bourse.Quoted(root.MediaType))
	}
	sizes := map[digest.Digest]int64{}
	rest := []ocispec.Descriptor{root}
	for followed := 0; len(rest) > 0; followed++ {
		if followed+len(rest) > bound.entries {
			return nil, invalid("its manifests name more than %d parts", bound.entries)
		}
		d := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if err := u.has(ctx, d); err != nil {
			return nil, err
		}
		sizes[d.Digest] = d.Size
		if !isManifest(d) {
			continue
		}
		children, err := images.Children(ctx, u, d)
		if err != nil {
			return nil, invalid("%w", err)
		}
		rest = append(rest, children...)
	}
	return sizes, nil
}

// has checks that a part is there, and is as large as it is said to be.
func (u unpacked) has(ctx context.Context, d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return invalid("digest %s: %w", bourse.Quoted(d.Digest.String()), err)
	}
	info, err := u.Info(ctx, d.Digest)
	switch {
	case errdefs.IsNotFound(err):
		return invalid("it lacks %s, which is a part of the image", d.Digest)
	case err != nil:
		return err
	case info.Size != d.Size || d.MediaType == "":
		return invalid("%s has %d bytes, and is said to have %d, of media type %s", d.Digest, info.Size, d.Size, bourse.Quoted(d.MediaType))
	case isManifest(d) && d.Size > maxManifest:
		return invalid("manifest %s has %d bytes; at most %d are taken", d.Digest, d.Size, maxManifest)
	}
	return nil
}

func isManifest(d ocispec.Descriptor) bool {
	return images.IsManifestType(d.MediaType) || images.IsIndexType(d.MediaType)
}
