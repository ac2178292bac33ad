package store

import "github.com/bourse-dev/bourse"

// volumeGone tells whether nothing of a volume is left but its record.
func volumeGone(v *bourse.Volume) bool {
	return v.State == bourse.VolumeDestroyed && len(v.Snapshots) == 0
}

// volumeIndex gives every index entry that a volume has, as its record stands.
func volumeIndex(v *bourse.Volume) []indexEntry {
	if v == nil {
		return nil
	}
	id := []byte(v.ID)
	out := []indexEntry{{bucketVolumeApp, append(append([]byte(space(v.App, v.AppID)), 0), id...), []byte{}, ""}}
	for _, s := range v.Snapshots {
		out = append(out, indexEntry{bucketSnapshots, []byte(s.ID), id, "volume has this snapshot"})
	}
	if volumeGone(v) {
		out = append(out, indexEntry{bucketVolumeGone, timeKey(v.UpdatedAt, string(v.ID)), []byte{}, ""})
	}
	return out
}

// replaceVolume replaces what the old record contributes to indexes and sums
// by what the new one does. Either may be nil.
func (t *Tx) replaceVolume(old, now *bourse.Volume) error {
	var before, after bourse.Amounts
	if old != nil {
		before = old.Takes
	}
	if now != nil {
		after = now.Takes
	}
	if err := t.replaceEntries(volumeIndex(old), volumeIndex(now)); err != nil {
		return err
	}
	return t.resum(before, after)
}
