package volumes

import (
	"context"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Extend makes a volume larger, in use or not, and answers when it is.
// The ledger comes first: what it takes is taken before anything grows.
// Errors: invalid for a smaller size, insufficient_capacity when the worker's
// disk has no space, failed_precondition while it is not usable or grows
// already.
func (vs *Volumes) Extend(ctx context.Context, id bourse.VolumeID, sizeGB int64) (bourse.Volume, error) {
	run, err := vs.begin(ctx, vs.defs.extend, request{Volume: id}, func(tx *store.Tx) error {
		_, err := changeRecord(tx, id, "extend", func(v *bourse.Volume) (bool, error) { return true, vs.mayExtend(tx, v, sizeGB) })
		return err
	})
	if err != nil {
		return bourse.Volume{}, err
	}
	if _, err := run.Applied(ctx); err != nil {
		return bourse.Volume{}, err
	}
	v, err := vs.Get(ctx, id)
	v.NeedsRestart = v.Machine != "" && !vs.host.ExtendsLive()
	return v, err
}

// mayExtend makes v one that grows.
func (vs *Volumes) mayExtend(tx *store.Tx, v *bourse.Volume, sizeGB int64) error {
	switch {
	case v.State == bourse.VolumeDestroyed:
		return errNoVolume
	case v.State != bourse.VolumeCreated:
		return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to extend volume from current state: '%s'", v.State)
	case sizeGB > bourse.MaxVolumeGB:
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: use up to %d", sizeGB, bourse.MaxVolumeGB)
	case sizeGB < v.Spec.SizeGB:
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: volume %s has %d already, and never shrinks", sizeGB, v.ID, v.Spec.SizeGB)
	}
	v.State, v.GrowsTo = bourse.VolumeExtending, sizeGB
	r, err := vs.retake(tx, v)
	if err == nil && r != nil {
		err = insufficient(r, "could not extend volume "+string(v.ID))
	}
	return err
}

// extendStep makes a volume as large as its record says that it grows. A host
// that says no leaves it as it was.
func (vs *Volumes) extendStep(ctx context.Context, r *volumeRun) fsm.Outcome {
	v, err := vs.now(r.Request.Volume)
	if err != nil {
		return fsm.Abort(err)
	}
	if v.State != bourse.VolumeExtending {
		return fsm.Finish() // it has grown
	}
	err = vs.host.Extend(ctx, v.ID, v.GrowsTo)
	if err != nil && !isAnswer(err) {
		return fsm.Retry(err)
	}
	write := state.InTx(func(tx *store.Tx) error { return vs.recordExtended(tx, v.ID, err == nil) })
	if err != nil {
		return fsm.Abort(err, write)
	}
	return fsm.Done(write)
}

// recordExtended writes that a volume has grown, or that it has not, also into
// the machine that mounts it.
func (vs *Volumes) recordExtended(tx *store.Tx, id bourse.VolumeID, grown bool) error {
	v, err := changeRecord(tx, id, "extend", func(v *bourse.Volume) (bool, error) {
		if v.State != bourse.VolumeExtending {
			return false, nil
		}
		if grown {
			v.Spec.SizeGB = max(v.Spec.SizeGB, v.GrowsTo)
		}
		v.State, v.GrowsTo = bourse.VolumeCreated, 0
		v.Takes = Takes(v)
		return true, nil
	})
	if err != nil || !grown || v.Machine == "" {
		return err
	}
	_, err = state.ChangeMachine(tx, v.Machine, func(m *bourse.Machine) (bool, []bourse.Event, error) {
		i := slices.IndexFunc(m.Config.Mounts, func(mount bourse.Mount) bool { return mount.Volume == id })
		if i < 0 || m.Config.Mounts[i].SizeGB == v.Spec.SizeGB || m.State == bourse.StateDestroyed {
			return false, nil, nil
		}
		m.Config.Mounts[i].SizeGB = v.Spec.SizeGB
		vs.state.Machines.Changing(m.ID)
		return true, nil, nil
	})
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil
	}
	return err
}
