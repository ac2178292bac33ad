package image

import (
	"github.com/distribution/reference"

	"github.com/bourse-dev/bourse"
)

// parseName parses an image's name. It returns an error if no registry would accept the name.
func parseName(name string) (bourse.ImageRef, error) {
	ref := bourse.ParseImageRef(name)
	return ref, checkRef(ref)
}

// checkRef returns CodeInvalid if a parsed name is invalid or does not include a registry.
func checkRef(ref bourse.ImageRef) error {
	if ref.Registry == "" {
		return bourse.Errorf(bourse.CodeInvalid, "image %q is not in a registry", ref.Repository)
	}
	if _, err := reference.ParseNamed(ref.String()); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "image %q: %w", ref.String(), err)
	}
	if ref.Digest == "" {
		return nil
	}
	if _, err := newDigest(ref.Digest); err != nil {
		return bourse.Errorf(bourse.CodeInvalid, "image %q: %w", ref.String(), err)
	}
	return nil
}

// recordName returns the image's name with the digest and without the tag. This name identifies an image's record
// and its pull.
func recordName(ref bourse.ImageRef) string {
	return bourse.ImageRef{Registry: ref.Registry, Repository: ref.Repository, Digest: ref.Digest}.String()
}

// tagName returns the image's name without the digest, or "" if it has no tag.
func tagName(ref bourse.ImageRef) string {
	if ref.Tag == "" {
		return ""
	}
	return bourse.ImageRef{Registry: ref.Registry, Repository: ref.Repository, Tag: ref.Tag}.String()
}
