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

// destroyConcurrency limits how many machines of a deleted app are destroyed at the same time.
const destroyConcurrency = 16

// deleteApp destroys an app's machines and volumes, and then deletes the app. If it fails partway, the app still exists
// and the caller can retry.
//
// Without force=true, the call fails if the app has volumes, or if a worker that might run some of the app's machines
// does not respond. With force=true, the call succeeds anyway: machines on unresponsive workers outlive the app, and
// the response lists those workers. Running machines make the call fail only if the caller explicitly sends
// force=false, because clients of the Machines API omit force after the user has confirmed the deletion.
func (h *appHandler) deleteApp(w http.ResponseWriter, r *endpoint.Request) error {
	force, err := endpoint.QueryBool(r, "force")
	if err != nil {
		return err
	}
	app, err := h.apps.Find(r.Context(), r.App())
	if err != nil {
		return err
	}
	// List the workers only once. A worker that returns later is not queried, and must therefore still count as
	// missing.
	here := h.Directory.Workers()
	found, missing := h.machines.Find(r.Context(), here, &app, fabric.MachinesQuery{})
	missing = append(missing, h.lostOwners(r.Context(), &app, here)...)
	volumes := h.findVolumes(r.Context(), &app, here)
	careful := !force && r.URL.Query().Has("force")
	if careful {
		if err := checkNotRunning(found); err != nil {
			return err
		}
	}
	if !force {
		if err := checkDeletable(volumes, missing); err != nil {
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
	if err := h.deploys.Forget(r.Context(), &app); err != nil { // the app's ID is never reused, so nobody can find the releases anymore
		h.Log.WarnContext(r.Context(), "drop releases failed", slog.Any("app", app.Name), slog.Any("err", err))
	}
	endpoint.ListUnreachable(w.Header(), missing)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// lostOwners returns the workers that, according to the view, own machines of the app, but are not currently members.
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

// checkNotRunning returns CodeFailedPrecondition if any of the machines is running.
func checkNotRunning(found []bourse.Machine) error {
	running := 0
	for i := range found {
		switch found[i].State {
		case bourse.StateStarting, bourse.StateStarted, bourse.StateSuspending, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing:
			running++
		case bourse.StateCreated, bourse.StateSuspended, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroying, bourse.StateDestroyed:
		}
	}
	if running > 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: %d of the app's machines are running: stop them first, or use force=true", running)
	}
	return nil
}

// checkDeletable returns CodeFailedPrecondition if the app has volumes, and CodeUnavailable if some workers did not
// respond.
func checkDeletable(volumes []bourse.Volume, missing []bourse.WorkerID) error {
	if len(volumes) > 0 {
		return bourse.Errorf(bourse.CodeFailedPrecondition, "failed_precondition: the app has %d volumes: destroy them first, or use force=true", len(volumes))
	}
	if len(missing) > 0 {
		return bourse.Errorf(bourse.CodeUnavailable, "%d workers (%s, …) do not respond and may have machines of this app: use force=true", len(missing), missing[0])
	}
	return nil
}

func (h *appHandler) destroyAll(ctx context.Context, here []bourse.Member, found []bourse.Machine, force bool) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(destroyConcurrency)
	for i := range found {
		m := &found[i]
		if m.State == bourse.StateDestroyed {
			continue
		}
		worker := ownerOf(here, m.ID.Tag())
		group.Go(func() error {
			ctx, cancel := context.WithTimeout(ctx, verbTimeout)
			defer cancel()
			_, err := fabric.MachineDestroy.Call(ctx, h.Workers, worker, fabric.MachineAction{Machine: m.ID, Force: force, Nonce: nonceOf(m)})
			if bourse.CodeOf(err) == bourse.CodeNotFound {
				return nil // already destroyed
			}
			return endpoint.WorkerError(ctx, worker.ID, endpoint.Changing, err)
		})
	}
	return group.Wait()
}

// ownerOf returns the worker in asked that has the given tag. It panics if there is no such worker, so the tag must
// come from an object that one of these workers has reported. The worker may have left the cluster in the meantime;
// calls to it then fail.
func ownerOf(asked []bourse.Member, tag bourse.WorkerTag) bourse.Member {
	return asked[slices.IndexFunc(asked, func(m bourse.Member) bool { return m.Tag == tag })]
}

// nonceOf returns the nonce of a machine's lease, so that the lease does not prevent the app's deletion. A caller who
// may delete the app may also do anything that the lease's holder may do.
func nonceOf(m *bourse.Machine) string {
	if m.Lease == nil {
		return ""
	}
	return m.Lease.Nonce
}
