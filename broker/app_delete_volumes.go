package broker

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
)

// findVolumes asks the workers for an app's volumes. It does not report unresponsive workers, because the search for
// the app's machines already reports them.
func (h *appHandler) findVolumes(ctx context.Context, app *bourse.App, here []bourse.Member) []bourse.Volume {
	var out []bourse.Volume
	for _, a := range h.volumes.Ask(ctx, here, fabric.VolumesQuery{App: app.Name, AppID: app.ID}) {
		for _, v := range a.Got {
			if v.OwnedBy(app) && v.State != bourse.VolumeDestroying && v.State != bourse.VolumeDestroyed {
				out = append(out, v)
			}
		}
	}
	return out
}

// destroyVolumes destroys volumes. The machines that use them must already have been destroyed.
func (h *appHandler) destroyVolumes(ctx context.Context, here []bourse.Member, found []bourse.Volume) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(destroyConcurrency)
	for i := range found {
		id := found[i].ID
		worker := ownerOf(here, id.Tag())
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verbTimeout)
			defer cancel()
			v, err := fabric.VolumeDestroy.Call(ctx, h.Workers, worker, id)
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return nil // already destroyed
			}
			if err == nil {
				h.volumes.RememberReply(&v)
			}
			return volumeError(ctx, worker.ID, endpoint.Changing, err)
		})
	}
	return group.Wait()
}
