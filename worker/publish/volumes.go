package publish

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

// publishVolumes publishes the current records of the volumes in ids.
func (p *Publisher) publishVolumes(ctx context.Context, ids []bourse.VolumeID) error {
	for batch := range slices.Chunk(ids, Batch) {
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

// readVolumes adds the current records of the volumes in ids to u. A destroyed volume is removed
// from the view even if it still has snapshots, because lists of snapshots come from this worker,
// not from the view.
func (p *Publisher) readVolumes(u *Update, ids []bourse.VolumeID) error {
	return p.state.Store.View(func(tx *store.Tx) error {
		for _, id := range ids {
			v, err := tx.Volume(id)
			switch {
			case bourse.CodeOf(err) == bourse.CodeNotFound, err == nil && v.State == bourse.VolumeDestroyed:
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

// republishVolumes makes the volumes in the view match those in the store.
func (p *Publisher) republishVolumes(ctx context.Context) error {
	have, err := p.liveVolumes()
	if err != nil {
		return err
	}
	patient, cancel := context.WithTimeout(ctx, Timeout)
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
	for batch := range slices.Chunk(gone, Batch) {
		if err := p.publish(ctx, Update{GoneVolumes: batch}); err != nil {
			return err
		}
	}
	return nil
}

// liveVolumes returns the sorted ids of the volumes in the store that are not destroyed.
func (p *Publisher) liveVolumes() ([]bourse.VolumeID, error) {
	var out []bourse.VolumeID
	err := p.state.Store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			if v.State != bourse.VolumeDestroyed {
				out = append(out, v.ID)
			}
		}
		return nil
	})
	return out, err
}
