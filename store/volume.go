package store

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// KindVolume is the Kind of log entries about volumes. DeleteVolume deletes a volume's entries
// together with its record.
const KindVolume = "volume"

var errNoVolume = bourse.Errorf(bourse.CodeNotFound, "volume not found")

// Volume returns a volume's record. It returns CodeNotFound if there is no such volume.
func (t *Tx) Volume(id bourse.VolumeID) (bourse.Volume, error) {
	v, ok, err := volumes.get(t, []byte(id))
	if err == nil && !ok {
		err = errNoVolume
	}
	return v, err
}

// PutVolume inserts or replaces a volume's record and updates the indexes and the committed sums. The volume's usage
// is not stored.
//
// Errors: CodeInternal if the transition from the recorded state to the new one is not allowed, or
// if a value is out of range; CodeAlreadyExists if one of the snapshots belongs to another volume.
func (t *Tx) PutVolume(v *bourse.Volume) error {
	now := *v
	now.Usage = nil
	if err := validVolume(&now); err != nil {
		return err
	}
	old, ok, err := volumes.get(t, []byte(now.ID))
	switch {
	case err != nil:
		return err
	case old.State != now.State && !old.State.CanBecome(now.State):
		return bourse.Errorf(bourse.CodeInternal, "volume %s cannot change from %q to %q", now.ID, old.State, now.State)
	case !ok:
		return volumes.swap(t, []byte(now.ID), nil, &now)
	}
	return volumes.swap(t, []byte(now.ID), &old, &now)
}

func validVolume(v *bourse.Volume) error {
	for _, err := range []error{v.ID.Validate(), v.App.Validate(), v.Takes.Validate()} {
		if err != nil {
			return bourse.Errorf(bourse.CodeInternal, "record of volume %s: %w", bourse.Quoted(string(v.ID)), err)
		}
	}
	for i, s := range v.Snapshots {
		if err := s.ID.Validate(); err != nil {
			return bourse.Errorf(bourse.CodeInternal, "record of volume %s: %w", v.ID, err)
		}
		for _, other := range v.Snapshots[:i] {
			if other.ID == s.ID {
				return bourse.Errorf(bourse.CodeInternal, "record of volume %s: duplicate snapshot %s", v.ID, s.ID)
			}
		}
	}
	return nil
}

// DeleteVolume deletes a volume's record, its index entries and its log entries. It returns
// CodeFailedPrecondition if the volume is not destroyed or still has a snapshot, and
// CodeNotFound if there is no such volume.
func (t *Tx) DeleteVolume(id bourse.VolumeID) error {
	old, err := t.Volume(id)
	switch {
	case err != nil:
		return err
	case !volumeDestroyed(&old):
		return bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s with %d snapshots: only a destroyed volume without snapshots can be deleted", id, old.State, len(old.Snapshots))
	}
	if err := t.deleteEntries(KindVolume, string(id)); err != nil {
		return err
	}
	return volumes.swap(t, []byte(id), &old, nil)
}

// Volumes returns all volumes sorted by id, including destroyed ones.
func (t *Tx) Volumes() iter.Seq2[bourse.Volume, error] { return volumes.all(t) }

// VolumesOf returns all volumes of an app sorted by id, including destroyed ones.
func (t *Tx) VolumesOf(app bourse.App) iter.Seq2[bourse.Volume, error] {
	return volumes.ofApp(t, bucketVolumeApp, &app, func(v *bourse.Volume) bool { return v.OwnedBy(&app) })
}
