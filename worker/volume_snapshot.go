package worker

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
)

// snapshot takes a snapshot of a volume and answers when it is taken. Errors:
// failed_precondition while another one is being taken, or the volume is not
// usable; insufficient_capacity when the worker's disk has no room.
func (w *Worker) snapshot(ctx context.Context, id bourse.VolumeID) (bourse.Snapshot, error) {
	snap, run, err := w.beginSnapshot(ctx, id, false)
	if err != nil {
		return bourse.Snapshot{}, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return bourse.Snapshot{}, err
	}
	v, err := w.volume(ctx, id)
	if err != nil {
		return bourse.Snapshot{}, err
	}
	s := snapshotOf(&v, snap)
	if s == nil {
		return bourse.Snapshot{}, errNoSnapshot
	}
	return *s, nil
}

// beginSnapshot records that a snapshot is to be taken, with the room that it
// may need.
func (w *Worker) beginSnapshot(ctx context.Context, id bourse.VolumeID, scheduled bool) (bourse.SnapshotID, *fsm.Handle[volumeResult], error) {
	v, err := w.volume(ctx, id)
	if err != nil {
		return "", nil, err
	}
	s := bourse.Snapshot{
		ID: bourse.NewSnapshotID(w.self.Tag), Volume: id, State: bourse.SnapshotCreating, Scheduled: scheduled,
		Bytes: w.snapshotRoom(ctx, &v), CreatedAt: time.Now().UTC(),
	}
	run, err := w.beginVolume(ctx, w.volumes.defs.snapshot, volumeRequest{Volume: id, Snapshot: s.ID}, func(tx *store.Tx) error {
		_, err := changeVolume(tx, id, "snapshot", func(v *bourse.Volume) (bool, error) { return true, w.maySnapshot(tx, v, s) })
		return err
	})
	return s.ID, run, err
}

// maySnapshot adds a snapshot to v that is to be taken.
func (w *Worker) maySnapshot(tx *store.Tx, v *bourse.Volume, s bourse.Snapshot) error {
	if v.State == bourse.VolumeDestroyed {
		return errNoVolume
	}
	if !v.State.Usable() {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to take a snapshot of a volume in state '%s'", v.State)
	}
	for _, other := range v.Snapshots {
		if other.State == bourse.SnapshotCreating {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "snapshot is already scheduled at %s", other.CreatedAt.Format(time.RFC3339))
		}
	}
	s.RetentionDays, s.SizeGB = v.Spec.RetentionDays, v.Spec.SizeGB
	v.Snapshots = append(v.Snapshots, s)
	r, err := w.retake(tx, v)
	if err == nil && r != nil {
		err = insufficient(r, "could not take a snapshot of volume "+string(v.ID))
	}
	return err
}

const (
	snapshotSlack = 64 << 20 // bytes of a file system that its usage does not count: its journal, above all
	snapshotPart  = 8        // one part in so many of what is used may be written until the snapshot is taken
)

// snapshotRoom says how many bytes a snapshot may take: what is used and some
// more, at most the whole volume. What it turns out to take is settled later.
func (w *Worker) snapshotRoom(ctx context.Context, v *bourse.Volume) int64 {
	whole := v.Spec.SizeGB << 30
	usage, err := w.volumes.host.Usage(ctx, v.ID)
	if err != nil || usage.Blocks == 0 { // not known
		return whole
	}
	used := (usage.Blocks - usage.BlocksFree) * usage.BlockSize
	return min(whole, used+used/snapshotPart+snapshotSlack)
}

// takeSnapshot takes what the record says that is being taken.
func (w *Worker) takeSnapshot(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := w.volumeNow(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	s := snapshotOf(&v, r.Request.Snapshot)
	if s == nil || s.State != bourse.SnapshotCreating {
		return fsm.Finish()
	}
	info, err := w.volumes.host.Snapshot(ctx, v.ID, s.ID)
	if err != nil {
		if !isAnswer(err) {
			return fsm.Retry(err)
		}
		r.Result.Failure = &failure{bourse.CodeOf(err), bourse.MessageOf(err)}
		return fsm.Done(inTx(func(tx *store.Tx) error { return w.recordSnapshot(tx, r.Request, nil) }))
	}
	return fsm.Done(inTx(func(tx *store.Tx) error { return w.recordSnapshot(tx, r.Request, &info) }))
}

// recordSnapshot writes what was taken. Without it, or when it takes more than
// the ledger has, the snapshot has failed and still takes what it took.
func (w *Worker) recordSnapshot(tx *store.Tx, req volumeRequest, info *volume.Info) error {
	_, err := changeVolume(tx, req.Volume, "snapshot", func(v *bourse.Volume) (bool, error) {
		s := snapshotOf(v, req.Snapshot)
		if s == nil || s.State != bourse.SnapshotCreating {
			return false, nil
		}
		before := *s
		s.State = bourse.SnapshotFailed
		if info == nil {
			return true, nil
		}
		s.State, s.Bytes, s.Digest, s.SizeGB = bourse.SnapshotCreated, info.Bytes, info.Digest, info.SizeGB
		refusal, err := w.retake(tx, v)
		if refusal != nil {
			*s = before
			s.State = bourse.SnapshotFailed
		}
		return true, err
	})
	return err
}

// settleSnapshot removes a snapshot that has failed; it stays in the record,
// for people.
func (w *Worker) settleSnapshot(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := w.volumeNow(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	s := snapshotOf(&v, r.Request.Snapshot)
	if s == nil || s.State != bourse.SnapshotFailed {
		return fsm.Finish()
	}
	if err := w.volumes.host.RemoveSnapshot(ctx, s.ID); err != nil {
		return fsm.Retry(err)
	}
	why := bourse.Errorf(bourse.CodeInsufficient, "insufficient disk for a snapshot of volume %s: more was written while it was taken", v.ID)
	if r.Result.Failure != nil {
		why = r.Result.Failure.err()
	}
	return fsm.Abort(why, inTx(func(tx *store.Tx) error {
		_, err := changeVolume(tx, v.ID, "snapshot", func(v *bourse.Volume) (bool, error) {
			s := snapshotOf(v, r.Request.Snapshot)
			if s == nil {
				return false, nil
			}
			s.Bytes = 0
			v.Takes = volumeTakes(v)
			return true, nil
		})
		return err
	}))
}

// removeSnapshots removes snapshots whose time is over.
func (w *Worker) removeSnapshots(ctx context.Context, r *volumeRun) fsm.Outcome {
	for _, id := range r.Request.Snapshots {
		if err := w.volumes.host.RemoveSnapshot(ctx, id); err != nil {
			return fsm.Retry(err)
		}
	}
	return fsm.Done(inTx(func(tx *store.Tx) error {
		_, err := changeVolume(tx, r.Request.Volume, "expire", func(v *bourse.Volume) (bool, error) {
			v.Snapshots = slices.DeleteFunc(v.Snapshots, func(s bourse.Snapshot) bool { return slices.Contains(r.Request.Snapshots, s.ID) })
			v.Takes = volumeTakes(v)
			return true, nil
		})
		return err
	}))
}
