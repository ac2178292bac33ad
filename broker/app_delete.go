package broker

import (
	"context"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// destroyAtOnce bounds how many machines of a deleted app are destroyed side
// by side.
const destroyAtOnce = 16

// deleteApp destroys an app's machines, its volumes, then the app: when it
// breaks off in between the app is still there and the call can be repeated.
// Without force, nothing is done while a machine runs or there is a volume, or
// while a worker that might have one does not answer. With it, what silent
// workers have outlives its app; the reply names those workers.
func (b *Broker) deleteApp(w http.ResponseWriter, r *request) error {
	force, err := queryBool(r, "force")
	if err != nil {
		return err
	}
	app, err := b.apps.find(r.Context(), r.app())
	if err != nil {
		return err
	}
	found, missing := b.findMachines(r.Context(), &app, fabric.MachinesQuery{})
	missing = append(missing, b.lostOwners(r.Context(), &app)...)
	volumes := b.findVolumes(r.Context(), &app)
	if !force {
		if err := mayDelete(found, volumes, missing); err != nil {
			return err
		}
	}
	if err := b.destroyAll(r.Context(), found, force); err != nil {
		return err
	}
	if err := b.destroyVolumes(r.Context(), volumes); err != nil {
		return err
	}
	if err := b.apps.delete(r.Context(), app); err != nil {
		return err
	}
	showSilent(w.Header(), missing)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// lostOwners gives the workers that have machines of the app, as far as the
// view has heard, and are no members any more.
func (b *Broker) lostOwners(ctx context.Context, app *bourse.App) []bourse.WorkerID {
	rows, err := b.View.Machines(ctx, app.Name)
	if err != nil {
		b.viewFailed(ctx, err)
	}
	var out []bourse.WorkerID
	for i := range rows {
		if !rows[i].OwnedBy(app) {
			continue
		}
		id := rows[i].Worker
		if _, ok := b.Directory.Worker(id); !ok && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// mayDelete reports CodeFailedPrecondition when machines of the app run or it
// has data, and CodeUnavailable when nobody knows whether that is so.
func mayDelete(found []bourse.Machine, volumes []bourse.Volume, missing []bourse.WorkerID) error {
	running := 0
	for i := range found {
		switch found[i].State {
		case bourse.StateStarting, bourse.StateStarted, bourse.StateStopping, bourse.StateRestarting:
			running++
		case bourse.StateCreated, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
		}
	}
	if running > 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: %d machines of the app run: stop them first, or use force=true", running)
	}
	if len(volumes) > 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: the app has %d volumes: destroy them first, or use force=true", len(volumes))
	}
	if len(missing) > 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "%d workers do not answer (%s, …), so machines of the app may run there: use force=true", len(missing), missing[0])
	}
	return nil
}

func (b *Broker) destroyAll(ctx context.Context, found []bourse.Machine, force bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(destroyAtOnce)
	for i := range found {
		m := &found[i]
		if m.State == bourse.StateDestroyed {
			continue
		}
		worker, ok := b.Directory.ByTag(m.ID.Tag())
		if !ok {
			continue // it has left since it answered
		}
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verbPatience)
			defer cancel()
			_, err := b.Workers.Destroy(ctx, worker, m.ID, fabric.Act{Force: force, Nonce: nonceOf(m)})
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return nil // gone by itself
			}
			return workerError(ctx, worker.ID, changing, err)
		})
	}
	return group.Wait()
}

// nonceOf opens a machine's lease: whoever may delete the app may do so
// whoever holds it.
func nonceOf(m *bourse.Machine) string {
	if m.Lease == nil {
		return ""
	}
	return m.Lease.Nonce
}
