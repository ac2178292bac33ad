package volumes

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// Change changes how a volume's snapshots are made and kept: of those that
// are made from now on.
func (vs *Volumes) Change(ctx context.Context, id bourse.VolumeID, change fabric.VolumeChange) (bourse.Volume, error) {
	var v bourse.Volume
	err := vs.state.Store.Update(ctx, func(tx *store.Tx) error {
		var err error
		v, err = changeRecord(tx, id, "change", func(v *bourse.Volume) (bool, error) {
			if !living(v) {
				return false, errNoVolume
			}
			if change.RetentionDays != nil {
				v.Spec.RetentionDays = *change.RetentionDays
			}
			if change.ScheduledSnaps != nil {
				v.Spec.ScheduledSnaps = *change.ScheduledSnaps
			}
			return true, v.Spec.Validate()
		})
		return err
	})
	if err != nil { // the transaction may still be at work on v
		vs.state.Volumes.Changing(id)
		return bourse.Volume{}, err
	}
	vs.state.Volumes.Changed(id)
	return v, nil
}
