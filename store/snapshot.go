package store

import "github.com/bourse-dev/bourse"

// Snapshot returns a snapshot and its volume. It returns CodeNotFound if there is no such
// snapshot.
func (t *Tx) Snapshot(id bourse.SnapshotID) (bourse.Snapshot, bourse.Volume, error) {
	volume := t.kv.Get(bucketSnapshots, []byte(id))
	if volume == nil {
		return bourse.Snapshot{}, bourse.Volume{}, errNoSnapshot
	}
	v, err := t.Volume(bourse.VolumeID(volume))
	if err != nil {
		return bourse.Snapshot{}, v, err
	}
	for _, s := range v.Snapshots {
		if s.ID == id {
			return s, v, nil
		}
	}
	return bourse.Snapshot{}, v, bourse.Errorf(bourse.CodeInternal, "volume %s lacks snapshot %s, which the index lists", v.ID, id)
}

var errNoSnapshot = bourse.Errorf(bourse.CodeNotFound, "snapshot not found")
