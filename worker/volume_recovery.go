package worker

import (
	"context"
	"fmt"
	"slices"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

// recoverVolumes makes the host and the store agree about volumes: what has no
// record is removed, what has one and was not finished has a run that does.
// Nothing is mounted: that is done when a machine starts.
func (w *Worker) recoverVolumes(ctx context.Context) error {
	// The first pass removes nothing that is whole: a refusal to start leaves the
	// snapshots and scratch space of what is unknown, too.
	var unknown []string
	err := w.volumes.host.Recover(ctx, func(id string) bool {
		if w.unknownVolume(id) {
			unknown = append(unknown, id)
		}
		return true
	})
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return (&errUnknownMachines{slices.Compact(unknown)}).refusal()
	}
	if err == nil {
		err = w.volumes.host.Recover(ctx, w.keepsOnHost)
	}
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		w.log.Error("remove what has no record from the host's volumes", "err", err) // the others are of use all the same
	}
	unfinished, canceled, err := w.surveyVolumes()
	if err != nil {
		return err
	}
	for _, id := range canceled {
		if err := w.destroyCanceledVolume(ctx, id); err != nil {
			w.log.Error("destroy the volume of a canceled order", "volume", id, "err", err)
		}
	}
	for _, v := range unfinished {
		if err := w.resumeVolume(ctx, &v); err != nil {
			return fmt.Errorf("resume volume %s: %w", v.ID, err)
		}
	}
	return nil
}

// keepsOnHost tells whether what the host has under an id has a record: a
// volume's, a snapshot's, or a machine's, of scratch space.
func (w *Worker) keepsOnHost(id string) bool {
	keep := false
	err := w.store.View(func(tx *store.Tx) error {
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
		w.log.Error("ask for a record", "id", id, "err", err)
		return true // not known to be nobody's
	}
	return keep
}

// surveyVolumes finds volumes that are to change by themselves, and those of
// canceled orders.
func (w *Worker) surveyVolumes() (unfinished []bourse.Volume, canceled []bourse.VolumeID, err error) {
	err = w.store.View(func(tx *store.Tx) error {
		for v, err := range tx.Volumes() {
			if err != nil {
				return err
			}
			if resumeWith(&v, &w.volumes.defs) != nil {
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

// resumeWith gives what finishes a volume as its record stands, nil when
// nothing is open.
func resumeWith(v *bourse.Volume, defs *volumeDefinitions) *volumeDef {
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

// resumeVolume sees to it that a run finishes a volume. There is one unless an
// operator has skipped its step.
func (w *Worker) resumeVolume(ctx context.Context, v *bourse.Volume) error {
	req := volumeRequest{Volume: v.ID}
	for _, s := range v.Snapshots {
		if s.State == bourse.SnapshotCreating {
			req.Snapshot = s.ID
		}
	}
	_, err := resumeWith(v, &w.volumes.defs).Start(ctx, w.engine, resourceOfVolume(v.ID), req, fsm.StartOptions{})
	if err == nil && v.State == bourse.VolumeDestroying {
		err = w.endVolumeRuns(ctx, v.ID)
	}
	return err
}
