package volumes

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Unknown is the error that Recover returns if there are volumes on the host that have no record in the store.
type Unknown struct{ Volumes []string }

func (e *Unknown) Error() string { return "unknown volumes: " + strings.Join(e.Volumes, ", ") }

// Recover reconciles the host's volumes with the store. It removes all objects that have no record or are recorded as
// failed or destroyed, and ensures that a run exists for each volume's unfinished operation. It does not mount volumes;
// they are mounted when machines start. If there are volumes without a record and the operator has not allowed the
// worker to remove them, Recover removes only incomplete objects, and returns an Unknown error.
func (vs *Volumes) Recover(ctx context.Context) error {
	// The first pass removes only incomplete objects. If the worker then refuses to start because of unknown volumes,
	// these volumes, their snapshots and all scratch space still exist.
	var unknown []string
	err := vs.host.Recover(ctx, func(id string) bool {
		if vs.unknown(id) {
			unknown = append(unknown, id)
		}
		return true
	})
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return &Unknown{slices.Compact(unknown)}
	}
	if err == nil {
		err = vs.host.Recover(ctx, vs.keepsOnHost)
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		vs.state.Log.Error("remove volumes without a record failed", "err", err) // the remaining volumes can still be used
	}
	unfinished, canceled, err := vs.survey()
	if err != nil {
		return err
	}
	for _, id := range canceled {
		if err := vs.DestroyCanceled(ctx, id); err != nil {
			vs.state.Log.Error("destroy volume of canceled order failed", "volume", id, "err", err)
		}
	}
	for _, v := range unfinished {
		if err := vs.resume(ctx, &v); err != nil {
			return fmt.Errorf("resume volume %s: %w", v.ID, err)
		}
	}
	return nil
}

// keepsOnHost reports whether the object with this id must stay on the host. A volume stays unless it is recorded as
// failed or destroyed. A snapshot stays if it has a record. Scratch space stays unless its machine is recorded as
// destroyed. An object also stays if its record cannot be read.
func (vs *Volumes) keepsOnHost(id string) bool {
	keep := false
	err := vs.state.Store.View(func(tx *store.Tx) error {
		switch {
		case bourse.VolumeID(id).Validate() == nil:
			v, err := tx.Volume(bourse.VolumeID(id))
			keep = err == nil && v.State != bourse.VolumeFailed && v.State != bourse.VolumeDestroyed
			return err
		case bourse.SnapshotID(id).Validate() == nil:
			_, _, err := tx.Snapshot(bourse.SnapshotID(id))
			keep = err == nil
			return err
		default:
			m, err := tx.Machine(bourse.MachineID(id))
			keep = err == nil && m.State != bourse.StateDestroyed
			return err
		}
	})
	if err != nil && bourse.CodeOf(err) != bourse.CodeNotFound {
		vs.state.Log.Error("read record failed", "id", id, "err", err)
		return true // the record could not be read, but may exist
	}
	return keep
}

// unknown reports whether a volume on the host has no record. A volume's record is durable before the volume is
// created. A missing record therefore means that the store was lost, damaged or replaced by an older copy, and that the
// volume may contain data.
func (vs *Volumes) unknown(id string) bool {
	if vs.forget || bourse.VolumeID(id).Validate() != nil {
		return false
	}
	_, err := vs.current(bourse.VolumeID(id))
	return bourse.CodeOf(err) == bourse.CodeNotFound
}

// survey returns the volumes with unfinished work, and the volumes of canceled orders.
func (vs *Volumes) survey() (unfinished []bourse.Volume, canceled []bourse.VolumeID, err error) {
	err = vs.state.Store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			if resumeWith(&v, &vs.defs) != nil {
				unfinished = append(unfinished, v)
			}
			if v.State == bourse.VolumeDestroying || !isLive(&v) {
				continue
			}
			rec, ok, err := tx.Order(v.Order)
			if err != nil {
				return err
			}
			if ok && rec.Canceled && rec.Volume == v.ID {
				canceled = append(canceled, v.ID)
			}
		}
		return nil
	})
	return unfinished, canceled, err
}

// resumeWith returns the operation that is unfinished according to a volume's record, or nil if there is none.
func resumeWith(v *bourse.Volume, defs *definitions) *volumeDef {
	switch v.State {
	case bourse.VolumeCreating:
		return defs.create
	case bourse.VolumeRestoring, bourse.VolumeHydrating:
		return defs.fill
	case bourse.VolumeExtending:
		return defs.extend
	case bourse.VolumeDestroying:
		return defs.destroy
	case bourse.VolumeCreated, bourse.VolumeFailed, bourse.VolumeDestroyed:
	}
	for _, s := range v.Snapshots {
		if s.State == bourse.SnapshotCreating {
			return defs.snapshot
		}
	}
	return nil
}

// resume ensures that a run exists for a volume's unfinished operation. The run usually exists already, unless an
// operator has skipped its step.
func (vs *Volumes) resume(ctx context.Context, v *bourse.Volume) error {
	req := request{Volume: v.ID}
	for _, s := range v.Snapshots {
		if s.State == bourse.SnapshotCreating {
			req.Snapshot = s.ID
		}
	}
	_, err := resumeWith(v, &vs.defs).Start(ctx, vs.state.Engine, state.OfVolume(v.ID), req, fsm.StartOptions{})
	if err == nil && v.State == bourse.VolumeDestroying {
		err = vs.endRuns(ctx, v.ID)
	}
	return err
}
