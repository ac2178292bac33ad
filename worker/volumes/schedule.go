package volumes

import (
	"context"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

const (
	day                = 24 * time.Hour
	scheduleInterval   = time.Minute
	snapshotRetryDelay = time.Hour // delay after a failed scheduled snapshot
	snapshotTimeout    = copyLimit + time.Minute
)

// snapshotDue reports whether a volume's next scheduled snapshot is due. The result depends only on the volume's record
// and the time. After a daemon outage, only one snapshot is therefore taken instead of all missed ones, and no snapshot
// is taken twice.
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
			due = later(due, s.CreatedAt.Add(snapshotRetryDelay))
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

// dueSnapshots returns a volume's expired snapshots, and reports whether its next scheduled snapshot is due.
func dueSnapshots(v *bourse.Volume, now time.Time) (expire []bourse.SnapshotID, snapshot bool) {
	for _, s := range v.Snapshots {
		if s.Expired(now) {
			expire = append(expire, s.ID)
		}
	}
	return expire, snapshotDue(v, now)
}

// scheduler takes scheduled snapshots and removes expired snapshots. It takes one snapshot at a time, because
// concurrent snapshots of many volumes would slow down the disk for machines.
type scheduler struct {
	vs    *Volumes
	later map[bourse.VolumeID]time.Time // volumes whose scheduled snapshot could not begin, and the earliest time for the next attempt
}

// Run takes scheduled snapshots, removes expired ones and extends full volumes, until ctx
// is done.
func (vs *Volumes) Run(ctx context.Context) error {
	if vs.host == (noHost{}) {
		return nil
	}
	g := &grower{vs: vs, refused: map[bourse.VolumeID]refusal{}}
	var growing sync.WaitGroup // the grower has its own goroutine, because taking snapshots takes a long time
	growing.Go(func() { g.run(ctx) })
	defer growing.Wait()
	k := &scheduler{vs: vs, later: map[bourse.VolumeID]time.Time{}}
	tick := time.NewTicker(scheduleInterval)
	defer tick.Stop()
	for {
		if err := k.do(ctx, time.Now()); err != nil && ctx.Err() == nil {
			vs.state.Log.Warn("take scheduled snapshots failed", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// do takes the scheduled snapshots that are due, and removes expired snapshots.
func (k *scheduler) do(ctx context.Context, now time.Time) error {
	expire := map[bourse.VolumeID][]bourse.SnapshotID{}
	var due []bourse.VolumeID
	err := k.vs.state.Store.View(func(tx *store.Tx) error {
		busy, err := k.vs.sourcesInUse(tx, now)
		if err != nil {
			return err
		}
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			old, snapshot := dueSnapshots(&v, now)
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
	for id, old := range expire { // Start may join a run in progress, which may not remove all of them; the next call removes the others
		_, err := k.vs.defs.expire.Start(ctx, k.vs.state.Engine, state.OfVolume(id), request{Volume: id, Snapshots: old}, fsm.StartOptions{})
		if err != nil && bourse.CodeOf(err) != bourse.CodeRateLimited {
			return err
		}
	}
	for _, id := range due {
		k.snapshot(ctx, id, now)
	}
	return nil
}

// snapshot takes a scheduled snapshot, and waits until it is complete.
func (k *scheduler) snapshot(ctx context.Context, id bourse.VolumeID, now time.Time) {
	delete(k.later, id)
	_, run, err := k.vs.beginSnapshot(ctx, id, true)
	if err == nil {
		ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
		defer cancel()
		_, err = run.Wait(ctx)
	} else {
		k.later[id] = now.Add(snapshotRetryDelay)
	}
	if err != nil && ctx.Err() == nil {
		k.vs.state.Log.Warn("take scheduled snapshot failed", "volume", id, "err", err)
	}
}

// sourcesInUse returns the snapshots that other workers have read recently, and those from which this worker is
// restoring volumes.
func (vs *Volumes) sourcesInUse(tx *store.Tx, now time.Time) (map[bourse.SnapshotID]bool, error) {
	busy := vs.exports.recent(now)
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
