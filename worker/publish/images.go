package publish

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	imagesTimeout = 2 * time.Second  // for listing images, so that machines are published in time
	imagesAgain   = 15 * time.Second // after a failure
	imagesAge     = 10 * time.Minute // maximum error of an image's last use in the view
)

// shownImages holds the images that were published. Images are not in the store, so they
// are compared with the host's.
type shownImages struct {
	due       bool                    // the host's images may have changed
	after     time.Time               // earliest time of the next listing
	published map[string]bourse.Image // by digest; without a name if the view has it in an unknown form
}

// imagesChanged returns the channel of changes, nil if the worker has no images.
func (p *Publisher) imagesChanged() <-chan struct{} {
	if p.host == nil {
		return nil
	}
	return p.host.Changed()
}

// publishImages publishes images that were added, changed or removed. If the images cannot
// be listed, everything else is published anyway.
func (p *Publisher) publishImages(ctx context.Context) error {
	now := time.Now()
	if p.host == nil || !p.images.due || now.Before(p.images.after) {
		return nil
	}
	patient, cancel := context.WithTimeout(ctx, imagesTimeout)
	list, err := p.host.List(patient)
	cancel()
	if err != nil {
		p.images.after = now.Add(imagesAgain)
		p.state.Log.Debug("list images for view failed", "err", err)
		return nil
	}
	there, gone := changedImages(p.images.published, list)
	for batch := range slices.Chunk(there, Batch) {
		if err := p.publish(ctx, Update{Images: batch}); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(gone, Batch) {
		if err := p.publish(ctx, Update{GoneImages: batch}); err != nil {
			return err
		}
	}
	p.images.due = false
	return nil
}

// changedImages returns the differences between a host's images and the published ones. It
// ignores images that are still being pulled.
func changedImages(published map[string]bourse.Image, list []bourse.Image) (there []bourse.Image, gone []string) {
	missing := maps.Clone(published)
	for _, now := range list {
		if now.Pull != nil || now.Ref.Digest == "" {
			continue
		}
		old, known := published[now.Ref.Digest]
		delete(missing, now.Ref.Digest)
		if !known || old.Ref.String() != now.Ref.String() || old.Bytes != now.Bytes || now.UsedAt.Sub(old.UsedAt) > imagesAge {
			there = append(there, now)
		}
	}
	return there, slices.Sorted(maps.Keys(missing))
}

// forgetImages reads the digests of this worker's images in the view. All images are then
// published again, and the view's others are removed.
func (p *Publisher) forgetImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Patience)
	defer cancel()
	listed, err := p.view.Images(ctx)
	if err != nil {
		return err
	}
	p.images = shownImages{due: true, published: map[string]bourse.Image{}}
	for _, digest := range listed {
		p.images.published[digest] = bourse.Image{}
	}
	if p.host == nil { // the worker no longer has images
		for batch := range slices.Chunk(listed, Batch) {
			if err := p.publish(ctx, Update{GoneImages: batch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteImages records the images that were published.
func (p *Publisher) noteImages(u *Update) {
	for _, image := range u.Images {
		p.images.published[image.Ref.Digest] = image
	}
	for _, digest := range u.GoneImages {
		delete(p.images.published, digest)
	}
}
