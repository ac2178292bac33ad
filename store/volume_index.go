package store

import "github.com/bourse-dev/bourse"

var volumes = table[bourse.Volume]{bucketVolumes, volumeKeys, func(v *bourse.Volume) []sumPart { return committed(v.Takes) }}

// volumeDestroyed reports whether a volume is destroyed and has no snapshots. If so, nothing but its record
// remains.
func volumeDestroyed(v *bourse.Volume) bool {
	return v.State == bourse.VolumeDestroyed && len(v.Snapshots) == 0
}

func volumeKeys(v *bourse.Volume) []entry {
	id := []byte(v.ID)
	out := []entry{{bucketVolumeApp, append(append([]byte(appKey(v.App, v.AppID)), 0), id...), []byte{}, ""}}
	for _, s := range v.Snapshots {
		out = append(out, entry{bucketSnapshots, []byte(s.ID), id, "volume has this snapshot"})
	}
	if volumeDestroyed(v) {
		out = append(out, entry{bucketVolumeDestroyed, timeKey(v.UpdatedAt, string(v.ID)), []byte{}, ""})
	}
	return out
}
