package worker

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

// volumeTakes gives what a volume and its snapshots take of the worker's disk,
// by its record: a volume that grows takes what it will have.
func volumeTakes(v *bourse.Volume) bourse.Amounts {
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

// snapshotDisk rounds bytes up to what the ledger counts in.
func snapshotDisk(bytes int64) bourse.MiB { return bourse.MiB(max(0, bytes)+1<<20-1) >> 20 }

// retake makes v take what its record says. It gives the ledger's refusal
// when that is more than before and not there (invariant 4); v is then as it
// was.
func (w *Worker) retake(tx *store.Tx, v *bourse.Volume) (*bourse.Refusal, error) {
	takes := volumeTakes(v)
	if more := takes.Of(bourse.ResourceDisk) - v.Takes.Of(bourse.ResourceDisk); more > 0 {
		committed, err := tx.CommittedAt(time.Now())
		if err != nil {
			return nil, err
		}
		if r := w.ledger.fits(committed, bourse.Amounts{{Resource: bourse.ResourceDisk, Amount: more}}); r != nil {
			return r, nil
		}
	}
	v.Takes = takes
	return nil, nil
}

// insufficient is a refusal of the ledger as an error.
func insufficient(r *bourse.Refusal, what string) error {
	return bourse.Errorf(bourse.CodeInsufficient, "%s: %s", what, r.Detail)
}

// changeVolume reads a volume, lets change decide and alter it, and writes it
// with a line of the log, all in tx. A change that returns keep == false
// leaves everything as it is.
func changeVolume(tx *store.Tx, id bourse.VolumeID, what string, change func(v *bourse.Volume) (keep bool, err error)) (bourse.Volume, error) {
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
	return v, putVolume(tx, &v, from, what)
}

// putVolume writes a volume with a line of the log.
func putVolume(tx *store.Tx, v *bourse.Volume, from bourse.VolumeState, what string) error {
	if err := tx.PutVolume(v); err != nil {
		return err
	}
	_, err := tx.Append(store.Entry{
		At: v.UpdatedAt, Kind: store.KindVolume, ID: string(v.ID), Type: what, From: string(from), To: string(v.State),
	})
	return err
}

// snapshotOf finds a snapshot of v, nil if there is none.
func snapshotOf(v *bourse.Volume, id bourse.SnapshotID) *bourse.Snapshot {
	i := slices.IndexFunc(v.Snapshots, func(s bourse.Snapshot) bool { return s.ID == id })
	if i < 0 {
		return nil
	}
	return &v.Snapshots[i]
}

// volume reads a volume as it is after everything acknowledged so far.
func (w *Worker) volume(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	if err := w.store.Sync(ctx); err != nil {
		return bourse.Volume{}, err
	}
	return w.volumeNow(id)
}

// volumeNow reads a volume as the store has it.
func (w *Worker) volumeNow(id bourse.VolumeID) (bourse.Volume, error) {
	var v bourse.Volume
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		v, err = tx.Volume(id)
		return err
	})
	return v, err
}

// usedVolume is volume with its usage, if the host tells it.
func (w *Worker) usedVolume(ctx context.Context, id bourse.VolumeID) (bourse.Volume, error) {
	v, err := w.volume(ctx, id)
	if err != nil || !v.State.Usable() {
		return v, err
	}
	if usage, err := w.volumes.host.Usage(ctx, id); err == nil && usage.Blocks > 0 {
		v.Usage = &usage
	}
	return v, nil
}

// listVolumes lists the volumes of an app, or all for nil, oldest first.
func (w *Worker) listVolumes(ctx context.Context, app *bourse.App, keep func(*bourse.Volume) bool) ([]bourse.Volume, error) {
	if err := w.store.Sync(ctx); err != nil {
		return nil, err
	}
	out := []bourse.Volume{}
	err := w.store.View(func(tx *store.Tx) error {
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

// awaitVolume reads a volume at each change until it is as wanted, and gives
// it.
func (w *Worker) awaitVolume(ctx context.Context, id bourse.VolumeID, wanted func(*bourse.Volume) bool) (bourse.Volume, error) {
	for {
		change := w.volumes.news.of(id)
		v, err := w.volume(ctx, id)
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
