package volumes

import (
	"testing"
	"time"

	"github.com/bourse-dev/bourse"
)

func TestWhatIsDueForVolumes(t *testing.T) {
	born := time.Unix(1e9, 0)
	at := func(d time.Duration) time.Time { return born.Add(d) }
	snap := func(age time.Duration, state bourse.SnapshotState, scheduled bool) bourse.Snapshot {
		return bourse.Snapshot{ID: "s", State: state, Scheduled: scheduled, RetentionDays: 2, CreatedAt: at(age)}
	}
	const made, failed, going = bourse.SnapshotCreated, bourse.SnapshotFailed, bourse.SnapshotCreating
	for name, c := range map[string]struct {
		now     time.Duration
		snaps   []bourse.Snapshot
		off     bool
		state   bourse.VolumeState
		expires int
		due     bool
	}{
		"young":             {now: day - 1},
		"a day old":         {now: day, due: true},
		"not wanted":        {now: day, off: true},
		"not usable":        {now: day, state: bourse.VolumeDestroyed},
		"growing":           {now: day, state: bourse.VolumeExtending, due: true},
		"taken yesterday":   {now: 2*day - 1, snaps: []bourse.Snapshot{snap(day, made, true)}},
		"taken a day ago":   {now: 2 * day, snaps: []bourse.Snapshot{snap(day, made, true)}, due: true},
		"missed for a week": {now: 8 * day, snaps: []bourse.Snapshot{snap(day, made, true)}, due: true, expires: 1},
		"a snapshot that a user took does not count": {now: day, snaps: []bourse.Snapshot{snap(day-1, made, false)}, due: true},
		"one is being taken":                         {now: 9 * day, snaps: []bourse.Snapshot{snap(0, going, false)}},
		"failed a moment ago":                        {now: day + 1, snaps: []bourse.Snapshot{snap(day, failed, true)}},
		"failed an hour ago":                         {now: day + time.Hour, snaps: []bourse.Snapshot{snap(day, failed, true)}, due: true},
		"kept for its retention time":                {now: 2*day - 1, snaps: []bourse.Snapshot{snap(0, made, false)}, off: true},
		"not longer":                                 {now: 2 * day, snaps: []bourse.Snapshot{snap(0, made, false)}, off: true, expires: 1},
		"also of a destroyed volume":                 {now: 2 * day, snaps: []bourse.Snapshot{snap(0, made, true)}, state: bourse.VolumeDestroyed, expires: 1},
		"a failed one is listed as long":             {now: 2 * day, snaps: []bourse.Snapshot{snap(0, failed, false), snap(day, failed, false)}, off: true, expires: 1},
	} {
		v := bourse.Volume{State: bourse.VolumeCreated, CreatedAt: born, Snapshots: c.snaps, Spec: bourse.VolumeOrder{ScheduledSnaps: !c.off}}
		if c.state != "" {
			v.State = c.state
		}
		expire, due := dueSnapshots(&v, at(c.now))
		if len(expire) != c.expires || due != c.due {
			t.Errorf("%s: %d expire, snapshot due %t; want %d, %t", name, len(expire), due, c.expires, c.due)
		}
	}
}
