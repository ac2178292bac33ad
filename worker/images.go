package worker

import (
	"context"

	"github.com/bourse-dev/bourse"
)

// Images are the images that the host has, and the way to more of them.
// Errors: not_found and invalid are final (no such image, none for this
// platform, access denied, content that is not what its digest says),
// insufficient_capacity too; unavailable may pass.
type Images interface {
	ImageHints
	// Resolve returns the reference with the digest that a name stands for now,
	// once its registry has shown that to the organisation. An organisation of
	// "" has no credentials of its own.
	Resolve(ctx context.Context, org, name string) (bourse.ImageRef, error)
	// Pull returns when the image is on the host, ready to be started. All
	// who ask for one image at the same time share one pull. Only an
	// organisation for which the reference was resolved may ask.
	Pull(ctx context.Context, org string, ref bourse.ImageRef, progress func(bourse.Image)) (bourse.Image, error)
	// List gives every image, those being pulled too.
	List(ctx context.Context) ([]bourse.Image, error)
	// Prune removes every image that is not in use, and gives those.
	Prune(ctx context.Context) ([]bourse.Image, error)
	// SetInUse sets what is asked before an image is removed. It is called
	// before the store runs.
	SetInUse(inUse func(digest string) bool)
	// Changed gives a channel of capacity one that holds a token when List may
	// have changed. It is always the same channel.
	Changed() <-chan struct{}
}

// ImageHints are what is known of images without asking anyone: they answer
// within microseconds.
type ImageHints interface {
	// Has tells whether the image of a resolved reference is ready.
	Has(ref bourse.ImageRef) bool
	// Missing gives how many bytes would have to be pulled for an organisation
	// to run a name; known is false for one that was never shown to it.
	Missing(org, name string) (bytes int64, known bool)
	// Used notes that a machine was started from an image.
	Used(digest string)
}
