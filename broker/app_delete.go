package broker

import (
	"context"
	"log/slog"
	"net/http"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/view/inventory"
)

// destroyAtOnce bounds how many machines of a deleted app are destroyed side
// by side.
const destroyAtOnce = 16

// deleteApp destroys an app's machines, its volumes, then the app: when it
// breaks off in between the app is still there and the call can be repeated.
// Clients of the Machines API have asked their user, and send no force: machines
// that run are refused only with force=false. Without force=true nothing is done
// while there is a volume, or while a worker that might have a machine does not
// answer; with it, what silent workers have outlives its app, and the reply names
// those workers.
func (h *appHandler) deleteApp(w http.ResponseWriter, r *endpoint.Request) error {
	force, err := endpoint.QueryBool(r, "force")
	if err != nil {
		return err
	}
	app, err := h.apps.Find(r.Context(), r.App())
	if err != nil {
		return err
	}
	here := h.Directory.Workers() // one look: who comes back meanwhile was not asked, and is missing
	found, missing := h.known.Find(r.Context(), here, &app, fabric.MachinesQuery{})
	missing = append(missing, h.lostOwners(r.Context(), &app, here)...)
	volumes := h.findVolumes(r.Context(), &app, here)
	careful := !force && r.URL.Query().Has("force")
	if careful {
		if err := noneRuns(found); err != nil {
			return err
		}
	}
	if !force {
		if err := mayDelete(volumes, missing); err != nil {
			return err
		}
	}
	if err := h.destroyAll(r.Context(), here, found, !careful); err != nil {
		return err
	}
	if err := h.destroyVolumes(r.Context(), here, volumes); err != nil {
		return err
	}
	if err := h.secrets.Clear(r.Context(), app.ID); err != nil {
		return err
	}
	if err := h.apps.Delete(r.Context(), app); err != nil {
		return err
	}
	if err := h.deploys.Forget(r.Context(), &app); err != nil { // no one finds them any more: the app's id does not come back
		h.Log.WarnContext(r.Context(), "drop releases failed", slog.Any("app", app.Name), slog.Any("err", err))
	}
	endpoint.ListUnreachable(w.Header(), missing)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// lostOwners returns the workers that have machines of the app, as far as the
// view has heard, and are not here.
func (h *appHandler) lostOwners(ctx context.Context, app *bourse.App, here []bourse.Member) []bourse.WorkerID {
	rows, err := h.View.Machines(ctx, inventory.Filter{App: app.Name})
	if err != nil {
		h.Log.WarnContext(ctx, "read view failed", slog.Any("err", err))
	}
	var out []bourse.WorkerID
	for i := range rows {
		if !rows[i].OwnedBy(app) {
			continue
		}
		id := rows[i].Worker
		there := slices.ContainsFunc(here, func(m bourse.Member) bool { return m.ID == id })
		if !there && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	return out
}

// noneRuns reports CodeFailedPrecondition when machines of the app run.
func noneRuns(found []bourse.Machine) error {
	running := 0
	for i := range found {
		switch found[i].State {
		case bourse.StateStarting, bourse.StateStarted, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing:
			running++
		case bourse.StateCreated, bourse.StateSuspended, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
		}
	}
	if running > 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: machines of the app run (%d): stop them first, or use force=true", running)
	}
	return nil
}

// mayDelete reports CodeFailedPrecondition when the app has data, and
// CodeUnavailable when it is not known what it has.
func mayDelete(volumes []bourse.Volume, missing []bourse.WorkerID) error {
	if len(volumes) > 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: the app has %d volumes: destroy them first, or use force=true", len(volumes))
	}
	if len(missing) > 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "%d workers do not answer (%s, …), so machines of the app may run there: use force=true", len(missing), missing[0])
	}
	return nil
}

func (h *appHandler) destroyAll(ctx context.Context, here []bourse.Member, found []bourse.Machine, force bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(destroyAtOnce)
	for i := range found {
		m := &found[i]
		if m.State == bourse.StateDestroyed {
			continue
		}
		worker := ownerAmong(here, m.ID.Tag())
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verbPatience)
			defer cancel()
			_, err := fabric.MachineDestroy.Call(ctx, h.Workers, worker, fabric.MachineAction{Machine: m.ID, Force: force, Nonce: nonceOf(m)})
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return nil // gone by itself
			}
			return endpoint.WorkerError(ctx, worker.ID, endpoint.Changing, err)
		})
	}
	return group.Wait()
}

// ownerAmong returns the worker, of those that were asked, whose things have ids that begin
// with tag: one of them answered with such a thing. If it has left since, it cannot be
// reached.
func ownerAmong(asked []bourse.Member, tag bourse.WorkerTag) bourse.Member {
	return asked[slices.IndexFunc(asked, func(m bourse.Member) bool { return m.Tag == tag })]
}

// nonceOf opens a machine's lease: a caller that may delete the app may do so
// the caller that holds it.
func nonceOf(m *bourse.Machine) string {
	if m.Lease == nil {
		return ""
	}
	return m.Lease.Nonce
}
