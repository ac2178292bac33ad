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

// Unknown says that the host has volumes that no record of the store is about.
type Unknown struct{ Volumes []string }

func (e *Unknown) Error() string { return "unknown volumes: " + strings.Join(e.Volumes, ", ") }

// Recover makes the host and the store agree about volumes: what has no
// record is removed, what has one and was not finished has a run that does.
// Nothing is mounted: that is done when a machine starts. Unknown: the host has
// volumes without a record, and all that it has is still there.
func (vs *Volumes) Recover(ctx context.Context) error {
	// The first pass removes nothing that is whole: a refusal to start leaves the
	// snapshots and scratch space of what is unknown, too.
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
		vs.state.Log.Error("remove what has no record from the host's volumes", "err", err) // the others are of use all the same
	}
	unfinished, canceled, err := vs.survey()
	if err != nil {
		return err
	}
	for _, id := range canceled {
		if err := vs.DestroyCanceled(ctx, id); err != nil {
			vs.state.Log.Error("destroy the volume of a canceled order", "volume", id, "err", err)
		}
	}
	for _, v := range unfinished {
		if err := vs.resume(ctx, &v); err != nil {
			return fmt.Errorf("resume volume %s: %w", v.ID, err)
		}
	}
	return nil
}

// keepsOnHost reports whether what the host has under an id has a record: a
// volume's, a snapshot's, or a machine's, of scratch space.
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
		vs.state.Log.Error("ask for a record", "id", id, "err", err)
		return true // it may have one
	}
	return keep
}

// unknown reports whether the host has a volume that no record is about. Such a
// record is durable before the volume is made, so the store was lost, damaged
// or replaced by an older copy, and what looks like a leftover may be data.
func (vs *Volumes) unknown(id string) bool {
	if vs.forget || bourse.VolumeID(id).Validate() != nil {
		return false
	}
	_, err := vs.now(bourse.VolumeID(id))
	return bourse.CodeOf(err) == bourse.CodeNotFound
}

// survey finds volumes that are to change by themselves, and those of
// canceled orders.
func (vs *Volumes) survey() (unfinished []bourse.Volume, canceled []bourse.VolumeID, err error) {
	err = vs.state.Store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			if resumeWith(&v, &vs.defs) != nil {
				unfinished = append(unfinished, v)
			}
			if v.State == bourse.VolumeDestroying || !living(&v) {
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

// resumeWith returns what finishes a volume by its record, nil when
// nothing is open.
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

// resume sees to it that a run finishes a volume. There is one unless an
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
