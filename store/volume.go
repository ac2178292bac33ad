package store

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// KindVolume is the kind of the entries about volumes, which DeleteVolume takes
// with it.
const KindVolume = "volume"

var errNoVolume = bourse.Errorf(bourse.CodeNotFound, "volume not found")

// Volume returns a volume's record; CodeNotFound when there is none.
func (t *Tx) Volume(id bourse.VolumeID) (bourse.Volume, error) {
	v, ok, err := volumes.get(t, []byte(id))
	if err == nil && !ok {
		err = errNoVolume
	}
	return v, err
}

// PutVolume inserts a volume's record or replaces it, and with it the indexes
// and the committed sums. Its usage is not stored.
//
// Errors: CodeInternal for a state that may not follow the recorded one, or a
// record that is out of its ranges; CodeAlreadyExists when another volume has
// one of its snapshots.
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
		return bourse.Errorf(bourse.CodeInternal, "volume %s cannot go from %q to %q", now.ID, old.State, now.State)
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
				return bourse.Errorf(bourse.CodeInternal, "record of volume %s: snapshot %s is there twice", v.ID, s.ID)
			}
		}
	}
	return nil
}

// DeleteVolume removes a volume's record, its indexes and its log. It has to
// be destroyed and to have no snapshot any more (CodeFailedPrecondition);
// CodeNotFound when there is none.
func (t *Tx) DeleteVolume(id bourse.VolumeID) error {
	old, err := t.Volume(id)
	switch {
	case err != nil:
		return err
	case !volumeGone(&old):
		return bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s and has %d snapshots: its record stays", id, old.State, len(old.Snapshots))
	}
	if err := t.deleteEntries(KindVolume, string(id)); err != nil {
		return err
	}
	return volumes.swap(t, []byte(id), &old, nil)
}

// Volumes returns every volume in order of id, destroyed ones included.
func (t *Tx) Volumes() iter.Seq2[bourse.Volume, error] { return volumes.all(t) }

// VolumesOf returns every volume of an app in order of id, destroyed ones
// included.
func (t *Tx) VolumesOf(app bourse.App) iter.Seq2[bourse.Volume, error] {
	return volumes.ofApp(t, bucketVolumeApp, &app, func(v *bourse.Volume) bool { return v.OwnedBy(&app) })
}
