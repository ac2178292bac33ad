package broker

import (
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// volumePatience bounds a call that may copy a volume: a snapshot of a large
// one. What it began goes on behind it.
const volumePatience = 10 * time.Minute

// volumeTargetOf is volumeOf for those who need no more than to know that the
// volume is of the path's app, which is usually remembered.
func (b *Broker) volumeTargetOf(r *request) (volumeTarget, error) {
	to, err := b.volumeOwner(r)
	if err != nil {
		return to, err
	}
	if of, ok := b.volumes.owners.of(to.id); ok {
		if !r.reaches(of) {
			return to, errNoVolume()
		}
		return to, nil
	}
	to, _, err = b.volumeOf(r)
	return to, err
}

// onVolume sends a change to the volume's owner and gives the volume after it.
func (b *Broker) onVolume(r *request, change func(context.Context, volumeTarget) (bourse.Volume, error)) (bourse.Volume, error) {
	to, err := b.volumeTargetOf(r)
	if err != nil {
		return bourse.Volume{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), verbPatience)
	defer cancel()
	v, err := change(ctx, to)
	if err != nil {
		return v, volumeError(r.Context(), to.worker.ID, changing, err)
	}
	b.volumes.note(&v)
	return v, nil
}

func (b *Broker) updateVolume(w http.ResponseWriter, r *request) error {
	var in machinesapi.UpdateVolume
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	if d := in.SnapshotRetention; d != nil && (*d < 1 || *d > bourse.MaxRetentionDays) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid snapshot_retention %d: use 1 to %d days", *d, bourse.MaxRetentionDays)
	}
	v, err := b.onVolume(r, func(ctx context.Context, to volumeTarget) (bourse.Volume, error) {
		return b.Workers.VolumeChange(ctx, to.worker, to.id, fabric.VolumeChange{RetentionDays: in.SnapshotRetention, ScheduledSnaps: in.AutoBackup})
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.FromVolume(&v))
}

// extendVolume answers once the volume has grown; the machine that has it need
// not be restarted.
func (b *Broker) extendVolume(w http.ResponseWriter, r *request) error {
	var in machinesapi.ExtendVolume
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	if in.SizeGB < 1 || in.SizeGB > bourse.MaxVolumeGB {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: use 1 to %d", in.SizeGB, bourse.MaxVolumeGB)
	}
	v, err := b.onVolume(r, func(ctx context.Context, to volumeTarget) (bourse.Volume, error) {
		return b.Workers.VolumeExtend(ctx, to.worker, to.id, in.SizeGB)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.Extended{Volume: machinesapi.FromVolume(&v), NeedsRestart: v.NeedsRestart})
}

func (b *Broker) destroyVolume(w http.ResponseWriter, r *request) error {
	v, err := b.onVolume(r, func(ctx context.Context, to volumeTarget) (bourse.Volume, error) {
		return b.Workers.VolumeDestroy(ctx, to.worker, to.id)
	})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, machinesapi.FromVolume(&v))
}

// createSnapshot answers once the snapshot is taken.
func (b *Broker) createSnapshot(w http.ResponseWriter, r *request) error {
	to, err := b.volumeTargetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), volumePatience)
	defer cancel()
	s, err := b.Workers.Snapshot(ctx, to.worker, to.id)
	if err != nil {
		return volumeError(r.Context(), to.worker.ID, changing, err)
	}
	return writeJSON(w, http.StatusOK, machinesapi.FromSnapshot(&s))
}
