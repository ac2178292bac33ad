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

// choose returns the descriptor of the archive's image with the given name, tag or digest. If name
// is empty, it returns the descriptor of the archive's only image.
func (u unpacked) choose(ctx context.Context, name string) (ocispec.Descriptor, error) {
	if u.index.Size > maxManifest {
		return ocispec.Descriptor{}, invalid("the index has %d bytes, but the limit is %d", u.index.Size, maxManifest)
	}
	raw, err := content.ReadBlob(ctx, u, u.index)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var index ocispec.Index
	if err := json.Unmarshal(raw, &index); err != nil {
		return ocispec.Descriptor{}, invalid("index: %w", err)
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
		return ocispec.Descriptor{}, invalid("it contains no image")
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return ocispec.Descriptor{}, bourse.Errorf(bourse.CodeNotFound, "image %s is not in the archive, which contains only %s", bourse.Quoted(name), list(names))
	}
	return ocispec.Descriptor{}, bourse.Errorf(bourse.CodeInvalid, "the archive contains several images: specify one of %s", list(names))
}

// namesOf returns the names of an image in an archive, including its digest.
func namesOf(d ocispec.Descriptor) []string {
	var out []string
	for _, key := range []string{images.AnnotationImageName, ocispec.AnnotationRefName} {
		if name := d.Annotations[key]; name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return append(out, d.Digest.String())
}

// list formats a list of names for an error message. It includes at most 12 of them.
func list(names []string) string {
	const limit = 12
	slices.Sort(names)
	names = slices.Compact(names)
	rest := ""
	if len(names) > limit {
		names, rest = names[:limit], ", …"
	}
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = bourse.Quoted(n)
	}
	return strings.Join(quoted, ", ") + rest
}

// verify visits all parts of an image and returns their sizes. It returns an error if a part is
// missing or has the wrong size, or if a limit is exceeded.
func (u unpacked) verify(ctx context.Context, root ocispec.Descriptor, bound limits) (map[digest.Digest]int64, error) {
	if !isManifest(root) {
		return nil, invalid("the image in its index has media type %s", bourse.Quoted(root.MediaType))
	}
	sizes := map[digest.Digest]int64{}
	rest := []ocispec.Descriptor{root}
	for visited := 0; len(rest) > 0; visited++ {
		if visited+len(rest) > bound.entries {
			return nil, invalid("its manifests list more than %d parts", bound.entries)
		}
		d := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if err := u.check(ctx, d); err != nil {
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

// check returns an error unless a part exists and has the size in its descriptor.
func (u unpacked) check(ctx context.Context, d ocispec.Descriptor) error {
	if err := d.Digest.Validate(); err != nil {
		return invalid("digest %s: %w", bourse.Quoted(d.Digest.String()), err)
	}
	info, err := u.Info(ctx, d.Digest)
	switch {
	case errdefs.IsNotFound(err):
		return invalid("part %s of the image is missing", d.Digest)
	case err != nil:
		return err
	case info.Size != d.Size || d.MediaType == "":
		return invalid("%s has %d bytes, but its descriptor states %d bytes and media type %s", d.Digest, info.Size, d.Size, bourse.Quoted(d.MediaType))
	case isManifest(d) && d.Size > maxManifest:
		return invalid("manifest %s has %d bytes, but the limit is %d", d.Digest, d.Size, maxManifest)
	}
	return nil
}

func isManifest(d ocispec.Descriptor) bool {
	return images.IsManifestType(d.MediaType) || images.IsIndexType(d.MediaType)
}
