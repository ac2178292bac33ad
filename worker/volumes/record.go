package volumes

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

var (
	errNoVolume   = bourse.Errorf(bourse.CodeNotFound, "volume not found")
	errNoSnapshot = bourse.Errorf(bourse.CodeNotFound, "snapshot not found")
)

// Takes returns the disk space that a volume and its snapshots occupy in the ledger, according to the volume's record.
// A volume that is being extended counts with its future size.
func Takes(v *bourse.Volume) bourse.Amounts {
	var disk bourse.MiB
	if v.State != bourse.VolumeFailed && v.State != bourse.VolumeDestroyed {
		spec := v.Spec
		spec.SizeGB = max(spec.SizeGB, v.TargetGB)
		disk = spec.Disk()
	}
	for _, s := range v.Snapshots {
		disk += snapshotDisk(s.Bytes)
	}
	if disk == 0 {
		return nil
	}
	return bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: min(int64(disk), bourse.MaxAmount)}}
}

// snapshotDisk converts bytes to the ledger's unit and rounds up.
func snapshotDisk(bytes int64) bourse.MiB { return bourse.MiB(max(0, bytes)+1<<20-1) >> 20 }

// updateResources updates v.Takes after other fields of v have changed. If v needs more space than before and the
// ledger has no room for it, updateResources returns a refusal and does not change v.Takes (invariant 4).
func (vs *Volumes) updateResources(tx *store.Tx, v *bourse.Volume) (*bourse.Refusal, error) {
	needed := Takes(v)
	r, err := vs.admit.CheckRoom(tx, v.Takes, needed)
	if r == nil && err == nil {
		v.Takes = needed
	}
	return r, err
}

// insufficient converts a refusal by the ledger into an error.
func insufficient(r *bourse.Refusal, what string) error {
	return bourse.Errorf(bourse.CodeInsufficient, "%s: %s", what, r.Detail)
}

// changeRecord reads a volume, passes it to change, and writes the changed volume and a
// log entry, all in tx. If change returns keep == false, nothing is written.
func changeRecord(tx *store.Tx, id bourse.VolumeID, what string, change func(v *bourse.Volume) (keep bool, err error)) (bourse.Volume, error) {
	v, err := tx.Volume(id)
	if err != nil {
		return v, err
	}
	from := v.State
	keep, err := change(&v)
	if err != nil || !keep {
		return v, err
	}
	v.UpdatedAt = state.NextVersion(v.UpdatedAt, time.Now().UTC())
	return v, putRecord(tx, &v, from, what)
}

// putRecord writes a volume and a log entry.
func putRecord(tx *store.Tx, v *bourse.Volume, from bourse.VolumeState, what string) error {
	if err := tx.PutVolume(v); err != nil {
		return err
	}
	_, err := tx.Append(store.Entry{
		Kind: store.KindVolume, ID: string(v.ID),
		Event: bourse.Event{Type: bourse.EventType(what), From: bourse.State(from), State: bourse.State(v.State), At: v.UpdatedAt},
	})
	return err
}

// snapshotOf returns a snapshot of v, or nil if there is none with this id.
func snapshotOf(v *bourse.Volume, id bourse.SnapshotID) *bourse.Snapshot {
	i := slices.IndexFunc(v.Snapshots, func(s bourse.Snapshot) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &v.Snapshots[i]
}

// Record waits until everything that was submitted to the store before the call is durable, and then returns a volume's
// record.
func (vs *Volumes) Record(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	if err := vs.state.Store.Sync(ctx); err != nil {
		return bourse.Volume{}, err
	}
	return vs.current(id)
}

// current returns a volume's current record, which may not be durable yet.
func (vs *Volumes) current(id bourse.VolumeID) (bourse.Volume, error) {
	var v bourse.Volume
	err := vs.state.Store.View(func(tx *store.Tx) error {
		var err error
		v, err = tx.Volume(id)
		return err
	})
	return v, err
}

// Get is like Record, but also fills in the volume's usage if the host reports it.
func (vs *Volumes) Get(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	v, err := vs.Record(ctx, id)
	if err != nil || !v.State.Usable() {
		return v, err
	}
	if usage, err := vs.host.Usage(ctx, id); err == nil && usage.Blocks > 0 {
		v.Usage = &usage
	}
	return v, nil
}

// List returns the volumes of app for which keep returns true, oldest first. If app is
// nil, it returns the volumes of all apps.
func (vs *Volumes) List(ctx context.Context, app *bourse.App, keep func(*bourse.Volume) bool) ([]bourse.Volume, error) {
	if err := vs.state.Store.Sync(ctx); err != nil {
		return nil, err
	}
	out := []bourse.Volume{}
	err := vs.state.Store.View(func(tx *store.Tx) error {
		all := tx.Volumes()
		if app != nil {
			all = tx.VolumesOf(*app)
		}
		for v, err := range all {
			if err != nil {
				return err
			}
			if keep(&v) {
				out = append(out, v)
			}
		}
		return nil
	})
	slices.SortFunc(out, func(a, b bourse.Volume) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, err
}

func isLive(v *bourse.Volume) bool { return v.State != bourse.VolumeDestroyed }

// Await waits until wanted returns true for the volume, which it reads again after each
// change. It returns the volume.
func (vs *Volumes) Await(ctx context.Context, id bourse.VolumeID, wanted func(*bourse.Volume) bool) (bourse.Volume, error) {
	for {
		change := vs.state.Volumes.Next(id)
		v, err := vs.Record(ctx, id)
		if err != nil || wanted(&v) {
			return v, err
		}
		select {
		case <-change:
		case <-ctx.Done():
			return v, context.Cause(ctx)
		}
	}
}
