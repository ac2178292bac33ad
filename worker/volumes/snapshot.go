package volumes

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/volume"
	"github.com/bourse-dev/bourse/worker/state"
)

// Snapshot takes a snapshot of a volume and returns once it is complete. Errors:
// failed_precondition while another snapshot is being taken, if the volume is not usable, or if a
// virtual machine is using it and the host's file system cannot share blocks; insufficient_capacity
// if the worker's disk does not have enough space.
func (vs *Volumes) Snapshot(ctx context.Context, id bourse.VolumeID) (bourse.Snapshot, error) {
	snap, run, err := vs.beginSnapshot(ctx, id, false)
	if err != nil {
		return bourse.Snapshot{}, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return bourse.Snapshot{}, err
	}
	v, err := vs.Record(ctx, id)
	if err != nil {
		return bourse.Snapshot{}, err
	}
	s := snapshotOf(&v, snap)
	if s == nil {
		return bourse.Snapshot{}, errNoSnapshot
	}
	return *s, nil
}

// beginSnapshot records a new snapshot and the space that it may need, and begins the run
// that takes it.
func (vs *Volumes) beginSnapshot(ctx context.Context, id bourse.VolumeID, scheduled bool) (bourse.SnapshotID, *fsm.Handle[result], error) {
	v, err := vs.Record(ctx, id)
	if err != nil {
		return "", nil, err
	}
	if err := vs.host.Copyable(id); err != nil { // do not record a failed snapshot, because the schedule would add one every hour
		return "", nil, err
	}
	s := bourse.Snapshot{
		ID: bourse.NewSnapshotID(vs.state.Self.Tag), Volume: id, State: bourse.SnapshotCreating, Scheduled: scheduled,
		Bytes: vs.snapshotSpace(ctx, &v), CreatedAt: time.Now().UTC(),
	}
	run, err := vs.begin(ctx, vs.defs.snapshot, request{Volume: id, Snapshot: s.ID}, func(tx *store.Tx) error {
		_, err := changeRecord(tx, id, "snapshot", func(v *bourse.Volume) (bool, error) { return true, vs.maySnapshot(tx, v, s) })
		return err
	})
	return s.ID, run, err
}

// maySnapshot adds a new snapshot s to v's record, or returns an error if no snapshot can be taken
// now.
func (vs *Volumes) maySnapshot(tx *store.Tx, v *bourse.Volume, s bourse.Snapshot) error {
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
	r, err := vs.updateResources(tx, v)
	if err == nil && r != nil {
		err = insufficient(r, "could not take a snapshot of volume "+string(v.ID))
	}
	return err
}

const (
	snapshotMargin  = 64 << 20 // additional bytes, mainly for the file system's journal, which the reported usage does not include
	snapshotDivisor = 8        // allowance for data that is written while the snapshot is taken: 1/snapshotDivisor of the used bytes
)

// snapshotSpace estimates the size of a snapshot in bytes: the number of used bytes plus a margin,
// but no more than the whole volume. The actual size is recorded later.
func (vs *Volumes) snapshotSpace(ctx context.Context, v *bourse.Volume) int64 {
	whole := v.Spec.SizeGB << 30
	usage, err := vs.host.Usage(ctx, v.ID)
	if err != nil || usage.Blocks == 0 { // the usage is unknown
		return whole
	}
	used := (usage.Blocks - usage.BlocksFree) * usage.BlockSize
	return min(whole, used+used/snapshotDivisor+snapshotMargin)
}

// takeStep takes the recorded snapshot.
func (vs *Volumes) takeStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.current(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	s := snapshotOf(&v, r.Request.Snapshot)
	if s == nil || s.State != bourse.SnapshotCreating {
		return fsm.Finish()
	}
	info, err := vs.host.Snapshot(ctx, v.ID, s.ID)
	if err != nil {
		if !isFinal(err) {
			return fsm.Retry(err)
		}
		r.Result.Failure = &failure{bourse.CodeOf(err), bourse.MessageOf(err)}
		return fsm.Done(state.InTx(func(tx *store.Tx) error { return vs.recordSnapshot(tx, r.Request, nil) }))
	}
	return fsm.Done(state.InTx(func(tx *store.Tx) error { return vs.recordSnapshot(tx, r.Request, &info) }))
}

// recordSnapshot records that a snapshot is complete. If info is nil or the ledger has no room for
// the snapshot's actual size, it instead records that the snapshot has failed. The space for a
// failed snapshot stays reserved until settleStep has removed the snapshot.
func (vs *Volumes) recordSnapshot(tx *store.Tx, req request, info *volume.Info) error {
	_, err := changeRecord(tx, req.Volume, "snapshot", func(v *bourse.Volume) (bool, error) {
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
		refusal, err := vs.updateResources(tx, v)
		if refusal != nil {
			*s = before
			s.State = bourse.SnapshotFailed
		}
		return true, err
	})
	return err
}

// settleStep removes a failed snapshot from the host, and releases its disk space. The volume's
// record continues to list the snapshot.
func (vs *Volumes) settleStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.current(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	s := snapshotOf(&v, r.Request.Snapshot)
	if s == nil || s.State != bourse.SnapshotFailed {
		return fsm.Finish()
	}
	if err := vs.host.RemoveSnapshot(ctx, s.ID); err != nil {
		return fsm.Retry(err)
	}
	why := bourse.Errorf(bourse.CodeInsufficient, "insufficient disk for a snapshot of volume %s: too much data was written while it was taken", v.ID)
	if r.Result.Failure != nil {
		why = r.Result.Failure.err()
	}
	return fsm.Abort(why, state.InTx(func(tx *store.Tx) error {
		_, err := changeRecord(tx, v.ID, "snapshot", func(v *bourse.Volume) (bool, error) {
			s := snapshotOf(v, r.Request.Snapshot)
			if s == nil {
				return false, nil
			}
			s.Bytes = 0
			v.Takes = Takes(v)
			return true, nil
		})
		return err
	}))
}

// expireStep removes expired snapshots.
func (vs *Volumes) expireStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	for _, id := range r.Request.Snapshots {
		if err := vs.host.RemoveSnapshot(ctx, id); err != nil {
			return fsm.Retry(err)
		}
	}
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := changeRecord(tx, r.Request.Volume, "expire", func(v *bourse.Volume) (bool, error) {
			v.Snapshots = slices.DeleteFunc(v.Snapshots, func(s bourse.Snapshot) bool { return slices.Contains(r.Request.Snapshots, s.ID) })
			v.Takes = Takes(v)
			return true, nil
		})
		return err
	}))
}
