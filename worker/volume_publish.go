package worker

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// noteVolume has a change of a volume published, some time later. unsure says
// that the change is on its way into the store and perhaps not there yet.
func (w *Worker) noteVolume(id bourse.VolumeID, unsure bool) {
	if w.publisher != nil {
		w.publisher.box.addVolume(id, unsure)
	}
}

// publishVolumes publishes volumes as the store has them now.
func (p *publisher) publishVolumes(ctx context.Context, ids []bourse.VolumeID) error {
	for batch := range slices.Chunk(ids, publishBatch) {
		var u Update
		if err := p.readVolumes(&u, batch); err != nil {
			return err
		}
		if err := p.publish(ctx, u); err != nil {
			return err
		}
	}
	return nil
}

// readVolumes adds volumes to u as the store has them. A destroyed one is gone
// for the view: of its snapshots this worker tells.
func (p *publisher) readVolumes(u *Update, ids []bourse.VolumeID) error {
	return p.w.store.View(func(tx *store.Tx) error {
		for _, id := range ids {
			v, err := tx.Volume(id)
			switch {
			case bourse.CodeOf(err) == bourse.CodeNotFound, err == nil && !living(&v):
				if _, ok := p.volumes[id]; ok {
					u.GoneVolumes = append(u.GoneVolumes, id)
				}
			case err != nil:
				return err
			default:
				u.Volumes = append(u.Volumes, v)
			}
		}
		return nil
	})
}

// republishVolumes is the part of republish that is about volumes.
func (p *publisher) republishVolumes(ctx context.Context) error {
	have, err := p.livingVolumes()
	if err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, publishPatience)
	listed, err := p.view.Volumes(patient)
	cancel()
	if err != nil {
		return err
	}
	clear(p.volumes)
	for _, id := range listed {
		p.volumes[id] = struct{}{}
	}
	if err := p.publishVolumes(ctx, have); err != nil {
		return err
	}
	gone := slices.DeleteFunc(listed, func(id bourse.VolumeID) bool {
		_, lives := slices.BinarySearch(have, id)
		return lives
	})
	for batch := range slices.Chunk(gone, publishBatch) {
		if err := p.publish(ctx, Update{GoneVolumes: batch}); err != nil {
			return err
		}
	}
	return nil
}

// livingVolumes lists the volumes of the store that are not destroyed, in
// order.
func (p *publisher) livingVolumes() ([]bourse.VolumeID, error) {
	var out []bourse.VolumeID
	err := p.w.store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			if living(&v) {
				out = append(out, v.ID)
			}
		}
		return nil
	})
	return out, err
}
