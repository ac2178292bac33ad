package volumes

import (
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

var (
	errNoVolume   = bourse.Errorf(bourse.CodeNotFound, "volume not found")
	errNoSnapshot = bourse.Errorf(bourse.CodeNotFound, "snapshot not found")
)

// Takes returns the disk that a volume and its snapshots take, by its record. A growing
// volume takes its future size.
func Takes(v *bourse.Volume) bourse.Amounts {
	var disk bourse.MiB
	if v.State != bourse.VolumeFailed && v.State != bourse.VolumeDestroyed {
		spec := v.Spec
		spec.SizeGB = max(spec.SizeGB, v.GrowsTo)
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

// snapshotDisk rounds bytes up to the ledger's unit.
func snapshotDisk(bytes int64) bourse.MiB { return bourse.MiB(max(0, bytes)+1<<20-1) >> 20 }

// retake makes v take the disk that its record says. It returns a refusal if that is
// more than before and more than is free (invariant 4); then v is unchanged.
func (vs *Volumes) retake(tx *store.Tx, v *bourse.Volume) (*bourse.Refusal, error) {
	takes := Takes(v)
	r, err := vs.admit.Room(tx, v.Takes, takes)
	if r == nil && err == nil {
		v.Takes = takes
	}
	return r, err
}

// insufficient returns a refusal of the ledger as an error.
func insufficient(r *bourse.Refusal, what string) error {
	return bourse.Errorf(bourse.CodeInsufficient, "%s: %s", what, r.Detail)
}

// changeRecord reads a volume, lets change decide and modify it, and writes it with an
// entry in the log, all in tx. If change returns keep == false, nothing is written.
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
	v.UpdatedAt = time.Now().UTC()
	return v, putRecord(tx, &v, from, what)
}

// putRecord writes a volume with an entry in the log.
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

// snapshotOf returns a snapshot of v, nil if there is none.
func snapshotOf(v *bourse.Volume, id bourse.SnapshotID) *bourse.Snapshot {
	i := slices.IndexFunc(v.Snapshots, func(s bourse.Snapshot) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &v.Snapshots[i]
}

// Record returns a volume after everything acknowledged so far.
func (vs *Volumes) Record(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	if err := vs.state.Store.Sync(ctx); err != nil {
		return bourse.Volume{}, err
	}
	return vs.now(id)
}

// now returns a volume as it is in the store.
func (vs *Volumes) now(id bourse.VolumeID) (bourse.Volume, error) {
	var v bourse.Volume
	err := vs.state.Store.View(func(tx *store.Tx) error {
		var err error
		v, err = tx.Volume(id)
		return err
	})
	return v, err
}

// Get is Record with the volume's usage, if the host reports it.
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

// List returns the volumes for which keep returns true, oldest first: those of app, or
// of all apps if app is nil.
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

func living(v *bourse.Volume) bool { return v.State != bourse.VolumeDestroyed }

// Await reads a volume at each change until wanted returns true, and returns it.
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
