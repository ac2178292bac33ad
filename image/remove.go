package image

import (
	"context"
	"errors"
	"fmt"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"

	"github.com/bourse-dev/bourse"
)

// remove removes the named records, and all data that no other image, container or pull needs. It starts with the
// catalog, so that quotes no longer count these images as present.
func (s *Store) remove(ctx context.Context, c *containerd.Client, names []string) error {
	if len(names) == 0 {
		return nil
	}
	s.mu.Lock()
	for _, name := range names {
		s.memory.catalog.drop(name)
	}
	s.memory.change++
	s.mu.Unlock()
	defer s.notify()
	var errs []error
	for i, name := range names {
		var opts []images.DeleteOpt
		if i == len(names)-1 {
			opts = append(opts, images.SynchronousDelete())
		}
		if err := c.ImageService().Delete(ctx, name, opts...); err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("image %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// Remove removes all records of the image with the given digest. Errors: CodeNotFound if the image is not on this
// worker, CodeFailedPrecondition if a machine uses it, CodeUnavailable if containerd is unavailable. In the last case,
// List may omit the image until containerd is available again, because Remove removes the image from memory first.
func (s *Store) Remove(ctx context.Context, digest string) error {
	s.mu.Lock()
	inUse := s.memory.inUse
	var names []string
	for _, r := range s.memory.catalog.byDigest(digest) {
		names = append(names, r.name)
	}
	s.mu.Unlock()
	switch {
	case len(names) == 0:
		return bourse.Errorf(bourse.CodeNotFound, "image %s is not on this worker", digest)
	case inUse != nil && inUse(digest):
		return bourse.Errorf(bourse.CodeFailedPrecondition, "image %s is in use by a machine", digest)
	}
	ctx, c, err := s.containerd(ctx)
	if err != nil {
		return err
	}
	return withCode(s.remove(ctx, c, names), digest)
}

// Prune removes and returns all images that no machine uses.
func (s *Store) Prune(ctx context.Context) ([]bourse.Image, error) {
	s.mu.Lock()
	inUse := s.memory.inUse
	records := s.memory.catalog.sorted()
	gone := make([]bourse.Image, 0, len(records))
	for _, r := range records {
		gone = append(gone, r.image())
	}
	s.mu.Unlock()
	var names []string
	kept := gone[:0]
	for i, image := range gone {
		if inUse == nil || !inUse(image.Ref.Digest) {
			names, kept = append(names, records[i].name), append(kept, image)
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	ctx, c, err := s.containerd(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.remove(ctx, c, names); err != nil {
		return nil, withCode(err, "prune")
	}
	return kept, nil
}
