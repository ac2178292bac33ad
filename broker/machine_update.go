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

// updateTimeout is the time limit for an update, which may have to pull an image and stop the
// previous version.
const updateTimeout = 10*time.Minute + verbTimeout

// updateMachine updates a machine. It replies once the new version has started. If it replied earlier, a client that
// then waits for the state "started" could see the previous version's state.
func (h *machineHandler) updateMachine(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.UpdateMachine
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	warnings, err := review(w, in.Config, in.Review)
	if err != nil {
		return err
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	app, more, err := h.mayHave(r, to.id, in.Config)
	if err != nil {
		return err
	}
	secrets, keys, err := h.secrets.Require(r.Context(), app.ID, in.MinSecretsVersion)
	if err != nil {
		return err
	}
	if in.SkipSecrets {
		keys = nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), updateTimeout)
	defer cancel()
	done, err := fabric.MachineUpdate.Call(ctx, h.Workers, to.worker, fabric.UpdateRequest{
		Machine: to.id, Nonce: r.Header.Get(machinesapi.HeaderNonce), Config: *in.Config, Current: in.CurrentVersion,
		SkipLaunch: in.SkipLaunch, Cordoned: in.SkipServiceRegistration, Name: in.Name, Region: in.Region,
		LeaseTTL: in.LeaseTTL, LeaseOwner: r.Who.Name, Secrets: secrets, Renew: in.MinSecretsVersion, SkipSecrets: in.SkipSecrets, AppKeys: keys,
	})
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
	}
	m := &done.Machine
	h.machines.RememberReply(m)
	h.quota.RecordGrowth(app, more)
	out := machinesapi.FromMachine(m)
	out.Warnings = warnings
	if in.LeaseTTL > 0 {
		out.Nonce = nonceOf(m)
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// mayHave checks whether the app's quota permits the given config for the machine. It also returns the increase in the
// size of the machine's config, in bytes, relative to the latest config that this broker knows.
func (h *machineHandler) mayHave(r *endpoint.Request, id bourse.MachineID, config *bourse.Config) (bourse.App, int64, error) {
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return app, 0, err
	}
	now, _ := h.machines.Copy(r.Context(), id)
	more, err := h.quota.MayHaveConfig(r.Context(), app, &now.Config, config)
	return app, more, err
}

// machineVersions lists the versions of a machine that are still stored, newest first.
func (h *machineHandler) machineVersions(w http.ResponseWriter, r *endpoint.Request) error {
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	list, err := fabric.MachineVersions.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	out := make([]machinesapi.Version, len(list))
	for i := range list {
		out[i] = machinesapi.Version{Version: list[i].Instance, Config: &list[i].Config}
	}
	return endpoint.WriteJSON(w, http.StatusOK, out)
}
