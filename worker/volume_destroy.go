package worker

import (
	"context"
	"errors"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// destroyVolume removes a volume, and answers when it is gone. Its snapshots
// stay until their time is over. Errors: failed_precondition while a machine
// has it, or while it grows.
func (w *Worker) destroyVolume(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	run, err := w.beginDestroyVolume(ctx, id)
	if err != nil {
		return bourse.Volume{}, err
	}
	if _, err := run.Wait(ctx); err != nil {
		return bourse.Volume{}, err
	}
	return w.volume(ctx, id)
}

// beginDestroyVolume records that a volume will be destroyed, and ends what is
// being done to it. For one that is gone it is not_found.
func (w *Worker) beginDestroyVolume(ctx context.Context, id bourse.VolumeID) (*fsm.Handle[volumeResult], error) {
	run, err := w.beginVolume(ctx, w.volumes.defs.destroy, volumeRequest{Volume: id}, func(tx *store.Tx) error {
		_, err := changeVolume(tx, id, "destroy", func(v *bourse.Volume) (bool, error) {
			if err := mayDestroyVolume(tx, v); err != nil || v.State == bourse.VolumeDestroying {
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
	// A crash before this leaves runs that find the volume destroying; those
	// that are stuck are ended by the recovery.
	return run, w.endVolumeRuns(ctx, id)
}

func mayDestroyVolume(tx *store.Tx, v *bourse.Volume) error {
	switch v.State {
	case bourse.VolumeDestroyed:
		return errNoVolume
	case bourse.VolumeExtending:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to destroy volume from current state: '%s'", v.State)
	case bourse.VolumeCreating, bourse.VolumeRestoring, bourse.VolumeHydrating, bourse.VolumeCreated, bourse.VolumeFailed, bourse.VolumeDestroying:
	}
	holder, err := holderOf(tx, v)
	if err == nil && holder != "" {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "volume is currently bound to machine: %s", holder)
	}
	return err
}

// endVolumeRuns cancels what would keep the destruction of a volume waiting:
// making and filling it, and whatever is stuck.
func (w *Worker) endVolumeRuns(ctx context.Context, id bourse.VolumeID) error {
	defs := &w.volumes.defs
	for _, r := range w.engine.Runs() {
		if r.Resource != resourceOfVolume(id) || r.Definition == defs.destroy.Name() {
			continue
		}
		if r.Definition != defs.create.Name() && r.Definition != defs.fill.Name() && r.Status != fsm.Stuck {
			continue
		}
		err := w.engine.Cancel(ctx, r.ID, "the volume is being destroyed")
		if c := bourse.CodeOf(err); err != nil && c != bourse.CodeNotFound && c != bourse.CodeFailedPrecondition { // else it has ended
			return err
		}
	}
	return nil
}

// removeVolume removes a volume from the host, and snapshots of it that were
// never finished, then its place in the ledger. The record stays for a while,
// to be read.
func (w *Worker) removeVolume(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := w.volumeNow(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeDestroying {
		return fsm.Finish()
	}
	err = w.volumes.host.Destroy(ctx, v.ID)
	for _, s := range v.Snapshots {
		if s.State != bourse.SnapshotCreated {
			err = errors.Join(err, w.volumes.host.RemoveSnapshot(ctx, s.ID))
		}
	}
	if err != nil {
		return fsm.Retry(err)
	}
	return fsm.Done(inTx(func(tx *store.Tx) error {
		_, err := changeVolume(tx, v.ID, "destroy", func(v *bourse.Volume) (bool, error) {
			if v.State != bourse.VolumeDestroying {
				return false, nil
			}
			v.State, v.GrowsTo = bourse.VolumeDestroyed, 0
			v.Snapshots = slices.DeleteFunc(v.Snapshots, func(s bourse.Snapshot) bool { return s.State != bourse.SnapshotCreated })
			v.Takes = volumeTakes(v)
			return true, nil
		})
		return err
	}))
}

// mayCancelVolume refuses to cancel an order whose volume is in use. "" is no
// volume.
func mayCancelVolume(tx *store.Tx, id bourse.VolumeID) error {
	if id == "" {
		return nil
	}
	v, err := tx.Volume(id)
	if err == nil && living(&v) {
		err = mayDestroyVolume(tx, &v)
	}
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}

// destroyCanceledVolume destroys the volume of a canceled order, if it is
// there.
func (w *Worker) destroyCanceledVolume(ctx context.Context, id bourse.VolumeID) error {
	_, err := w.beginDestroyVolume(ctx, id)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}

// destroyAllVolumes destroys every volume and snapshot, and waits until they
// are gone or ctx ends.
func (w *Worker) destroyAllVolumes(ctx context.Context) error {
	all, err := w.listVolumes(ctx, nil, func(*bourse.Volume) bool { return true })
	if err != nil {
		return err
	}
	for _, v := range all {
		if err := w.destroyCanceledVolume(ctx, v.ID); err != nil {
			return err
		}
	}
	for _, v := range all {
		v, err := w.awaitVolume(ctx, v.ID, func(v *bourse.Volume) bool { return !living(v) })
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
		run, err := w.beginVolume(ctx, w.volumes.defs.expire, volumeRequest{Volume: v.ID, Snapshots: ids}, func(*store.Tx) error { return nil })
		if err == nil {
			_, err = run.Wait(ctx)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
