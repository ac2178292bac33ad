package broker

import (
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// volumeTimeout is the time limit for calls that may require the worker to copy a volume, for example to snapshot a
// large one. The worker continues even if the call times out.
const volumeTimeout = 10 * time.Minute

// volumeTargetOf is like volumeOf, but only checks that the volume belongs to the app in the path, without fetching the
// volume. A volume's app is usually cached.
func (h *volumeHandler) volumeTargetOf(r *endpoint.Request) (volumeTarget, error) {
	to, err := h.volumeOwner(r)
	if err != nil {
		return to, err
	}
	if of, ok := h.volumes.Owner(to.id); ok {
		if !r.MayUse(of) {
			return to, errNoVolume()
		}
		return to, nil
	}
	to, _, err = h.volumeOf(r)
	return to, err
}

// onVolume finds the volume that is named in the request's path, and calls change, which must make
// the volume's worker change it. onVolume returns the changed volume.
func (h *volumeHandler) onVolume(r *endpoint.Request, change func(context.Context, volumeTarget) (bourse.Volume, error)) (bourse.Volume, error) {
	to, err := h.volumeTargetOf(r)
	if err != nil {
		return bourse.Volume{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), verbTimeout)
	defer cancel()
	v, err := change(ctx, to)
	if err != nil {
		return v, volumeError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	h.volumes.RememberReply(&v)
	return v, nil
}

func (h *volumeHandler) updateVolume(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.UpdateVolume
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if d := in.SnapshotRetention; d != nil && (*d < 1 || *d > bourse.MaxRetentionDays) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid snapshot_retention %d: use 1 to %d days", *d, bourse.MaxRetentionDays)
	}
	v, err := h.onVolume(r, func(ctx context.Context, to volumeTarget) (bourse.Volume, error) {
		return fabric.VolumeUpdate.Call(ctx, h.Workers, to.worker, fabric.VolumeChange{Volume: to.id, RetentionDays: in.SnapshotRetention, ScheduledSnaps: in.AutoBackup})
	})
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromVolume(&v))
}

// extendVolume replies once the volume has its new size. The machine that uses the volume usually does not need a
// restart.
func (h *volumeHandler) extendVolume(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.ExtendVolume
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if in.SizeGB < 1 || in.SizeGB > bourse.MaxVolumeGB {
		return bourse.Errorf(bourse.CodeInvalid, "invalid size_gb %d: use 1 to %d", in.SizeGB, bourse.MaxVolumeGB)
	}
	v, err := h.onVolume(r, func(ctx context.Context, to volumeTarget) (bourse.Volume, error) {
		return fabric.VolumeExtend.Call(ctx, h.Workers, to.worker, fabric.ExtendRequest{Volume: to.id, SizeGB: in.SizeGB})
	})
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.Extended{Volume: machinesapi.FromVolume(&v), NeedsRestart: v.NeedsRestart})
}

func (h *volumeHandler) destroyVolume(w http.ResponseWriter, r *endpoint.Request) error {
	v, err := h.onVolume(r, func(ctx context.Context, to volumeTarget) (bourse.Volume, error) {
		return fabric.VolumeDestroy.Call(ctx, h.Workers, to.worker, to.id)
	})
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromVolume(&v))
}

// createSnapshot replies once the snapshot is complete.
func (h *volumeHandler) createSnapshot(w http.ResponseWriter, r *endpoint.Request) error {
	to, err := h.volumeTargetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), volumeTimeout)
	defer cancel()
	s, err := fabric.VolumeSnapshot.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		return volumeError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.FromSnapshot(&s))
}
