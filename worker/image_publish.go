package worker

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

// shownImages is what the view was told of the host's images. Nothing of it is
// in the store, so it is compared with the host.
type shownImages struct {
	due   bool                    // they may have changed
	after time.Time               // not to be listed before
	told  map[string]bourse.Image // by digest; one without a name: what the view has, nobody knows how
}

// imagesChanged gives the channel that tells of changes; nil without images.
func (p *publisher) imagesChanged() <-chan struct{} {
	if p.w.cfg.Images == nil {
		return nil
	}
	return p.w.cfg.Images.Changed()
}

// publishImages tells the view of the images that have come, changed or gone.
// Images that cannot be listed are no reason to keep anything else back.
func (p *publisher) publishImages(ctx context.Context) error {
	now := time.Now()
	if p.w.cfg.Images == nil || !p.images.due || now.Before(p.images.after) {
		return nil
	}
	patient, cancel := context.WithTimeout(ctx, imagesTimeout)
	list, err := p.w.cfg.Images.List(patient)
	cancel()
	if err != nil {
		p.images.after = now.Add(imagesAgain)
		p.w.log.Debug("list the images for the view", "err", err)
		return nil
	}
	there, gone := changedImages(p.images.told, list)
	for batch := range slices.Chunk(there, publishBatch) {
		if err := p.publish(ctx, Update{Images: batch}); err != nil {
			return err
		}
	}
	for batch := range slices.Chunk(gone, publishBatch) {
		if err := p.publish(ctx, Update{GoneImages: batch}); err != nil {
			return err
		}
	}
	p.images.due = false
	return nil
}

// changedImages tells what of a host's images is news to who was told so much.
// What is still being pulled is not there.
func changedImages(told map[string]bourse.Image, list []bourse.Image) (there []bourse.Image, gone []string) {
	missing := maps.Clone(told)
	for _, now := range list {
		if now.Pull != nil || now.Ref.Digest == "" {
			continue
		}
		old, known := told[now.Ref.Digest]
		delete(missing, now.Ref.Digest)
		if !known || old.Ref.String() != now.Ref.String() || old.Bytes != now.Bytes || now.UsedAt.Sub(old.UsedAt) > imagesAge {
			there = append(there, now)
		}
	}
	return there, slices.Sorted(maps.Keys(missing))
}

// forgetImages learns what the view has of this worker's images: all of them
// are told again, and those that the host has not are gone.
func (p *publisher) forgetImages(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	listed, err := p.view.Images(ctx)
	if err != nil {
		return err
	}
	p.images = shownImages{due: true, told: map[string]bourse.Image{}}
	for _, digest := range listed {
		p.images.told[digest] = bourse.Image{}
	}
	if p.w.cfg.Images == nil { // a worker that has given them up
		for batch := range slices.Chunk(listed, publishBatch) {
			if err := p.publish(ctx, Update{GoneImages: batch}); err != nil {
				return err
			}
		}
	}
	return nil
}

// noteImages notes what the view is about to be told, and what it was.
func (p *publisher) noteImages(u *Update) {
	for _, image := range u.Images {
		p.images.told[image.Ref.Digest] = image
	}
	for _, digest := range u.GoneImages {
		delete(p.images.told, digest)
	}
}
