package worker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

const (
	day            = 24 * time.Hour
	choresEvery    = time.Minute
	snapshotAgain  = time.Hour // after a scheduled one that failed
	snapshotWaited = copyLimit + time.Minute
)

// expired tells whether a snapshot's time is over. A failed one is kept as
// long, to be seen; one that is being taken is not judged.
func expired(s *bourse.Snapshot, now time.Time) bool {
	return s.State != bourse.SnapshotCreating && !now.Before(s.CreatedAt.Add(time.Duration(s.RetentionDays)*day))
}

// snapshotDue tells whether the next scheduled snapshot of a volume is due. It
// goes by the record alone, so that a daemon that was away takes one and not
// all that it missed, and none twice.
func snapshotDue(v *bourse.Volume, now time.Time) bool {
	if !v.Spec.ScheduledSnaps || !v.State.Usable() {
		return false
	}
	due := v.CreatedAt.Add(day)
	for _, s := range v.Snapshots {
		switch {
		case s.State == bourse.SnapshotCreating:
			return false
		case !s.Scheduled:
		case s.State == bourse.SnapshotFailed:
			due = later(due, s.CreatedAt.Add(snapshotAgain))
		default:
			due = later(due, s.CreatedAt.Add(day))
		}
	}
	return !now.Before(due)
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// volumeChores says what is due for a volume.
func volumeChores(v *bourse.Volume, now time.Time) (expire []bourse.SnapshotID, snapshot bool) {
	for _, s := range v.Snapshots {
		if expired(&s, now) {
			expire = append(expire, s.ID)
		}
	}
	return expire, snapshotDue(v, now)
}

// volumeKeeper does what is due for volumes, one after the other: snapshots of
// many volumes at once would take the disk from the machines.
type volumeKeeper struct {
	w     *Worker
	later map[bourse.VolumeID]time.Time // a scheduled snapshot was refused: not before
}

// keepVolumes takes scheduled snapshots and removes old ones, until ctx ends.
func (w *Worker) keepVolumes(ctx context.Context) error {
	if w.cfg.Volumes == nil {
		return nil
	}
	k := &volumeKeeper{w: w, later: map[bourse.VolumeID]time.Time{}}
	tick := time.NewTicker(choresEvery)
	defer tick.Stop()
	for {
		if err := k.do(ctx, time.Now()); err != nil && ctx.Err() == nil {
			w.log.Warn("keep volumes", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// do does what is due now.
func (k *volumeKeeper) do(ctx context.Context, now time.Time) error {
	expire := map[bourse.VolumeID][]bourse.SnapshotID{}
	var due []bourse.VolumeID
	err := k.w.store.View(func(tx *store.Tx) error {
		busy, err := k.w.sourcesInUse(tx, now)
		if err != nil {
			return err
		}
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			old, snapshot := volumeChores(&v, now)
			for _, id := range old {
				if !busy[id] {
					expire[v.ID] = append(expire[v.ID], id)
				}
			}
			if snapshot && now.After(k.later[v.ID]) {
				due = append(due, v.ID)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for id, old := range expire { // joins one that is under way: what that does not remove is removed next time
		_, err := k.w.volumes.defs.expire.Start(ctx, k.w.engine, resourceOfVolume(id), volumeRequest{Volume: id, Snapshots: old}, fsm.StartOptions{})
		if err != nil && bourse.CodeOf(err) != bourse.CodeRateLimited {
			return err
		}
	}
	for _, id := range due {
		k.snapshot(ctx, id, now)
	}
	return nil
}

// snapshot takes a scheduled snapshot and waits for it.
func (k *volumeKeeper) snapshot(ctx context.Context, id bourse.VolumeID, now time.Time) {
	delete(k.later, id)
	_, run, err := k.w.beginSnapshot(ctx, id, true)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, snapshotWaited)
		defer cancel()
		_, err = run.Wait(ctx)
	} else {
		k.later[id] = now.Add(snapshotAgain)
	}
	if err != nil && ctx.Err() == nil {
		k.w.log.Warn("scheduled snapshot", "volume", id, "err", err)
	}
}

// sourcesInUse gives the snapshots that something is being filled from.
func (w *Worker) sourcesInUse(tx *store.Tx, now time.Time) (map[bourse.SnapshotID]bool, error) {
	busy := w.volumes.exports.recent(now)
	for v, err := range tx.Volumes() {
		if err != nil {
			return nil, err
		}
		if v.State == bourse.VolumeRestoring {
			busy[v.Spec.Snapshot] = true
		}
	}
	return busy, nil
}
