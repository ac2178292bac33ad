package publish

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
)

const (
	imagesTimeout = 2 * time.Second  // of a list of images: it is not to keep machines from the view
	imagesAgain   = 15 * time.Second // after one that failed
	imagesAge     = 10 * time.Minute // that the view may be wrong about an image's last use
)

// shownImages is what was published of the host's images. Nothing of it is
// in the store, so it is compared with the host.
type shownImages struct {
	due       bool                    // they may have changed
	after     time.Time               // not to be listed before
	published map[string]bourse.Image // by digest; one without a name: the view has it, in an unknown form
}

// imagesChanged returns the channel of changes; nil without images.
func (p *Publisher) imagesChanged() <-chan struct{} {
	if p.host == nil {
		return nil
	}
	return p.host.Changed()
}

// publishImages publishes the images that have come, changed or gone.
// Images that cannot be listed are no reason to keep anything else back.
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
		p.state.Log.Debug("list the images for the view", "err", err)
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

// changedImages returns what of a host's images differs from what was
// published. What is still being pulled is not there.
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

// forgetImages reads what the view has of this worker's images: all of them
// are published again, and those that the host has not are gone.
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
	if p.host == nil { // a worker that has given them up
		for batch := range slices.Chunk(listed, Batch) {
			if err := p.publish(ctx, Update{GoneImages: batch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteImages notes what was published of images.
func (p *Publisher) noteImages(u *Update) {
	for _, image := range u.Images {
		p.images.published[image.Ref.Digest] = image
	}
	for _, digest := range u.GoneImages {
		delete(p.images.published, digest)
	}
}
