package store

import (
	"iter"

	"github.com/bourse-dev/bourse"
)

// KindVolume is the kind of the entries about volumes, which DeleteVolume takes
// with it.
const KindVolume = "volume"

var errNoVolume = bourse.Errorf(bourse.CodeNotFound, "volume not found")

// Volume gives a volume's record; CodeNotFound when there is none.
func (t *Tx) Volume(id bourse.VolumeID) (bourse.Volume, error) {
	v, err := t.volume(id)
	if err == nil && v == nil {
		err = errNoVolume
	}
	if err != nil {
		return bourse.Volume{}, err
	}
	return *v, nil
}

// volume reads a volume's record, nil when there is none.
func (t *Tx) volume(id bourse.VolumeID) (*bourse.Volume, error) {
	var v bourse.Volume
	ok, err := t.record(bucketVolumes, []byte(id), &v)
	if err != nil || !ok {
		return nil, err
	}
	return &v, nil
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
	old, err := t.volume(now.ID)
	if err != nil {
		return err
	}
	was := bourse.VolumeState("")
	if old != nil {
		was = old.State
	}
	if was != now.State && !was.CanBecome(now.State) {
		return bourse.Errorf(bourse.CodeInternal, "volume %s cannot go from %q to %q", now.ID, was, now.State)
	}
	if err := t.replaceVolume(old, &now); err != nil {
		return err
	}
	return t.putRecord(bucketVolumes, []byte(now.ID), &now)
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
	old, err := t.volume(id)
	switch {
	case err != nil:
		return err
	case old == nil:
		return errNoVolume
	case !volumeGone(old):
		return bourse.Errorf(bourse.CodeFailedPrecondition, "volume %s is %s and has %d snapshots: its record stays", id, old.State, len(old.Snapshots))
	}
	if err := t.replaceVolume(old, nil); err != nil {
		return err
	}
	if err := t.deleteEntries(KindVolume, string(id)); err != nil {
		return err
	}
	return t.delete(bucketVolumes, []byte(id))
}

// Volumes gives every volume in order of id, destroyed ones included.
func (t *Tx) Volumes() iter.Seq2[bourse.Volume, error] { return all[bourse.Volume](t, bucketVolumes) }

// VolumesOf gives every volume of an app in order of id, destroyed ones
// included.
func (t *Tx) VolumesOf(app bourse.App) iter.Seq2[bourse.Volume, error] {
	return func(yield func(bourse.Volume, error) bool) {
		for _, space := range spaces(&app) {
			for id := range t.under(bucketVolumeApp, append([]byte(space), 0)) {
				v, err := t.Volume(bourse.VolumeID(id))
				if err == nil && !v.OwnedBy(&app) {
					continue // of a former app of this name
				}
				if !yield(v, err) || err != nil {
					return
				}
			}
		}
	}
}
