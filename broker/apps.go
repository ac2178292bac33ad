package broker

import (
	"cmp"
	"errors"
	"log/slog"
	"net/http"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/broker/tenant"

	"github.com/bourse-dev/bourse/machinesapi"
)

// appHandler serves the app endpoints.
type appHandler struct {
	*Config
	apps     *lookup.Apps
	quota    *lookup.Checker
	machines *lookup.Machines
	volumes  *lookup.Volumes
	deploys  *tenant.Releases
	secrets  *tenant.Secrets
}

func (h *appHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.ForMachines("GET /v1/apps", endpoint.Token, h.listApps).Writes(machinesapi.AppList{}).Asks("org_slug"),
		endpoint.On("POST /v1/apps", endpoint.Token, h.createApp).Reads(machinesapi.CreateApp{}).Makes(machinesapi.App{}),
		endpoint.ForMachines("GET "+endpoint.OneApp, endpoint.App, h.getApp).Writes(machinesapi.App{}),
		endpoint.On("DELETE "+endpoint.OneApp, endpoint.App, h.deleteApp).Asks("force").Answers(http.StatusAccepted),
	}
}

// createApp creates an app. It ignores the wait query parameter, because the app already exists when the response is
// sent.
func (h *appHandler) createApp(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.CreateApp
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	name := cmp.Or(in.Name, in.AppName)
	if name != "" {
		if err := name.Validate(); err != nil {
			return err
		}
	}
	org := cmp.Or(in.Org, r.Who.Org, bourse.DefaultOrg)
	if bourse.AppName(org).Validate() != nil { // organization names follow the same rules as app names
		return bourse.Errorf(bourse.CodeInvalid, "invalid org_slug %s", bourse.Quoted(org))
	}
	if !r.Who.May(bourse.App{Name: name, Org: org}) {
		return endpoint.ErrForbidden()
	}
	if err := h.quota.MayHaveApp(r.Context(), org); err != nil {
		return err
	}
	r.Note(slog.String("app", string(name)))
	app, err := h.apps.Create(r.Context(), lookup.NewApp{Name: name, Org: org, Network: in.Network, Key: in.IdempotencyKey})
	if err != nil {
		return appError(err)
	}
	return endpoint.WriteJSON(w, http.StatusCreated, machinesapi.FromApp(app, 0, 0))
}

// getApp returns an app with its machine and volume counts.
func (h *appHandler) getApp(w http.ResponseWriter, r *endpoint.Request) error {
	app, err := h.apps.Find(r.Context(), r.App())
	if err != nil {
		return err
	}
	counts, missing := h.machines.Count(r.Context(), &app)
	gathered := h.volumes.Gather(r.Context(), []bourse.App{app})
	endpoint.ListUnreachable(w.Header(), missing)
	return endpoint.WriteJSON(w, http.StatusOK, h.show(&app, counts.Of(&app), gathered.Count().Of(&app), h.deploys.Deployed(r.Context(), &app)))
}

// listApps lists the apps that the caller may use.
func (h *appHandler) listApps(w http.ResponseWriter, r *endpoint.Request) error {
	counts, _ := h.machines.Count(r.Context(), nil)
	list, missing, err := h.apps.List(r.Context(), counts)
	if err != nil {
		return err
	}
	endpoint.ListUnreachable(w.Header(), missing)
	gathered := h.volumes.Gather(r.Context(), list)
	volumes := gathered.Count()
	org := r.URL.Query().Get("org_slug")
	deployed := h.deploys.Deployed(r.Context(), nil)
	out := machinesapi.AppList{Apps: []machinesapi.App{}}
	for _, app := range list {
		if (org == "" || org == app.Org) && r.Who.May(app) {
			out.Apps = append(out.Apps, h.show(&app, counts.Of(&app), volumes.Of(&app), deployed))
		}
	}
	out.Total = len(out.Apps)
	return endpoint.WriteJSON(w, http.StatusOK, out)
}

// show converts an app to the API's type. An app without machines is shown as suspended rather than
// pending if it has ever been deployed, because clients assume that a pending app has never been
// deployed.
func (h *appHandler) show(app *bourse.App, machines, volumes int, deployed map[string]bool) machinesapi.App {
	out := machinesapi.FromApp(*app, machines, volumes)
	if machines == 0 && deployed[app.ID] {
		out.Status = machinesapi.AppSuspended
	}
	return out
}

// appError converts an app creation error to a reply with the HTTP status and status word that clients expect.
func appError(err error) error {
	switch {
	case errors.Is(err, lookup.ErrNameTaken):
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Word: machinesapi.StatusNameTaken, Err: err}
	case errors.Is(err, lookup.ErrKeyUsed):
		return &endpoint.Reply{Status: http.StatusUnprocessableEntity, Err: err}
	}
	return err
}
