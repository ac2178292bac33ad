package publish

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	imagesTimeout    = 2 * time.Second  // time limit for listing images, so that machines are still published in time
	imagesRetryDelay = 15 * time.Second // delay after a failure
	imagesAge        = 10 * time.Minute // how far the last-use time of an image in the view may be off
)

// publishedImages tracks which images have been published. The store does not record images, so the publisher finds
// changes by comparing the published images with those on the host.
type publishedImages struct {
	due       bool                    // whether the host's images may have changed
	after     time.Time               // the earliest time at which images may be listed again
	published map[string]bourse.Image // published images by digest; an empty value means that the published details are unknown
}

// imagesChanged returns a channel that signals changes to the host's images. It is nil if the worker does not support
// images.
func (p *Publisher) imagesChanged() <-chan struct{} {
	if p.host == nil {
		return nil
	}
	return p.host.Changed()
}

// publishImages publishes images that were added or changed, and removes those that are gone. If the images cannot be
// listed, it returns nil and tries again later, so that the other records are still published.
func (p *Publisher) publishImages(ctx context.Context) error {
	now := time.Now()
	if p.host == nil || !p.images.due || now.Before(p.images.after) {
		return nil
	}
	patient, cancel := context.WithTimeout(ctx, imagesTimeout)
	list, err := p.host.List(patient)
	cancel()
	if err != nil {
		p.images.after = now.Add(imagesRetryDelay)
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

// changedImages compares a host's images (list) with the published ones. It returns the images to publish, and the
// digests of the images to remove. It ignores images that are still being pulled.
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

// forgetImages resets the list of published images to the digests that the view contains, without details. The next
// call to publishImages therefore publishes all images again, and removes those that no longer exist from the view. If
// the worker no longer supports images, forgetImages itself removes all of them from the view.
func (p *Publisher) forgetImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	listed, err := p.view.Images(ctx)
	if err != nil {
		return err
	}
	p.images = publishedImages{due: true, published: map[string]bourse.Image{}}
	for _, digest := range listed {
		p.images.published[digest] = bourse.Image{}
	}
	if p.host == nil { // the worker no longer has images, so remove the ones that an earlier daemon has published
		for batch := range slices.Chunk(listed, Batch) {
			if err := p.publish(ctx, Update{GoneImages: batch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteImages records that the images in u have been published.
func (p *Publisher) noteImages(u *Update) {
	for _, image := range u.Images {
		p.images.published[image.Ref.Digest] = image
	}
	for _, digest := range u.GoneImages {
		delete(p.images.published, digest)
	}
}
