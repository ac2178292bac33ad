package volumes

import (
	"context"
	"errors"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Destroy destroys a volume, and returns once it is gone. The volume's snapshots remain until they expire. Destroy
// returns failed_precondition while the volume belongs to a machine or is being extended.
func (vs *Volumes) Destroy(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	run, err := vs.beginDestroy(ctx, id)
	if err != nil {
		return bourse.Volume{}, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return bourse.Volume{}, err
	}
	return vs.Record(ctx, id)
}

// beginDestroy records that a volume will be destroyed, begins the run that destroys it, and cancels earlier runs that
// would block this run. It returns not_found if the volume is already destroyed.
func (vs *Volumes) beginDestroy(ctx context.Context, id bourse.VolumeID) (*fsm.Handle[result], error) {
	run, err := vs.begin(ctx, vs.defs.destroy, request{Volume: id}, func(tx *store.Tx) error {
		_, err := changeRecord(tx, id, "destroy", func(v *bourse.Volume) (bool, error) {
			if err := mayDestroy(tx, v); err != nil || v.State == bourse.VolumeDestroying {
				return false, err
			}
			v.State, v.Machine = bourse.VolumeDestroying, ""
			return true, nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	// If the daemon dies before endRuns has canceled the volume's other runs, these stop as soon as they find that the
	// volume is being destroyed. Recovery cancels stuck runs.
	return run, vs.endRuns(ctx, id)
}

func mayDestroy(tx *store.Tx, v *bourse.Volume) error {
	switch v.State {
	case bourse.VolumeDestroyed:
		return errNoVolume
	case bourse.VolumeExtending:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to destroy volume from current state: '%s'", v.State)
	case bourse.VolumeCreating, bourse.VolumeRestoring, bourse.VolumeHydrating, bourse.VolumeCreated, bourse.VolumeFailed, bourse.VolumeDestroying:
	}
	holder, err := admit.HolderOf(tx, v)
	if err == nil && holder != "" {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "volume is currently bound to machine: %s", holder)
	}
	return err
}

// endRuns cancels the runs that would block a volume's destruction: stuck runs, and runs that create or fill the
// volume.
func (vs *Volumes) endRuns(ctx context.Context, id bourse.VolumeID) error {
	defs := &vs.defs
	for _, r := range vs.state.Engine.Runs() {
		if r.Resource != state.OfVolume(id) || r.Definition == defs.destroy.Name() {
			continue
		}
		if r.Definition != defs.create.Name() && r.Definition != defs.fill.Name() && r.Status != fsm.Stuck {
			continue
		}
		err := vs.state.Engine.Cancel(ctx, r.ID, "the volume is being destroyed")
		if c := bourse.CodeOf(err); err != nil && c != bourse.CodeNotFound && c != bourse.CodeFailedPrecondition { // these codes mean that the run has already ended
			return err
		}
	}
	return nil
}

// removeStep removes a volume and its unfinished snapshots from the host, and then
// releases the volume's disk space. The volume's record remains readable for some time.
func (vs *Volumes) removeStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.current(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeDestroying {
		return fsm.Finish()
	}
	err = vs.host.Destroy(ctx, v.ID)
	for _, s := range v.Snapshots {
		if s.State != bourse.SnapshotCreated {
			err = errors.Join(err, vs.host.RemoveSnapshot(ctx, s.ID))
		}
	}
	if err != nil {
		return fsm.Retry(err)
	}
	return fsm.Done(state.InTx(func(tx *store.Tx) error {
		_, err := changeRecord(tx, v.ID, "destroy", func(v *bourse.Volume) (bool, error) {
			if v.State != bourse.VolumeDestroying {
				return false, nil
			}
			v.State, v.TargetGB = bourse.VolumeDestroyed, 0
			v.Snapshots = slices.DeleteFunc(v.Snapshots, func(s bourse.Snapshot) bool { return s.State != bourse.SnapshotCreated })
			v.Takes = Takes(v)
			return true, nil
		})
		return err
	}))
}

// MayCancel returns failed_precondition if an order cannot be canceled because its volume is in use. id is "" if the
// order has no volume.
func MayCancel(tx *store.Tx, id bourse.VolumeID) error {
	if id == "" {
		return nil
	}
	v, err := tx.Volume(id)
	if err == nil && isLive(&v) {
		err = mayDestroy(tx, &v)
	}
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}

// DestroyCanceled starts destroying a canceled order's volume, if the volume exists.
func (vs *Volumes) DestroyCanceled(ctx context.Context, id bourse.VolumeID) error {
	_, err := vs.beginDestroy(ctx, id)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}

// DestroyAll destroys all volumes and snapshots, and returns once they are gone or ctx is
// done.
func (vs *Volumes) DestroyAll(ctx context.Context) error {
	all, err := vs.List(ctx, nil, func(*bourse.Volume) bool { return true })
	if err != nil {
		return err
	}
	for _, v := range all {
		if err := vs.DestroyCanceled(ctx, v.ID); err != nil {
			return err
		}
	}
	for _, v := range all {
		v, err := vs.Await(ctx, v.ID, func(v *bourse.Volume) bool { return !isLive(v) })
		if err != nil {
			return err
		}
		var ids []bourse.SnapshotID
		for _, s := range v.Snapshots {
			ids = append(ids, s.ID)
		}
		if len(ids) == 0 {
			continue
		}
		run, err := vs.begin(ctx, vs.defs.expire, request{Volume: v.ID, Snapshots: ids}, func(*store.Tx) error { return nil })
		if err == nil {
			_, err = run.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
