package broker

import (
	"cmp"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// createApp makes an app. Its wait parameter changes nothing: an app is there
// when the reply is.
func (b *Broker) createApp(w http.ResponseWriter, r *request) error {
	var in machinesapi.CreateApp
	if err := decode(w, r, false, &in); err != nil {
		return err
	}
	name := cmp.Or(in.Name, in.AppName)
	if name != "" {
		if err := name.Validate(); err != nil {
			return err
		}
	}
	org := cmp.Or(in.Org, r.who.Org, DefaultOrg)
	if bourse.AppName(org).Validate() != nil { // same alphabet
		return bourse.Errorf(bourse.CodeInvalid, "invalid org_slug %s", bourse.Quoted(org))
	}
	if !r.who.may(bourse.App{Name: name, Org: org}) {
		return errForbidden()
	}
	if err := b.mayHaveApp(r.Context(), org); err != nil {
		return err
	}
	app, err := b.apps.create(r.Context(), newApp{name: name, org: org, network: in.Network, key: in.IdempotencyKey})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, machinesapi.FromApp(app, 0))
}

// getApp shows an app and counts its machines.
func (b *Broker) getApp(w http.ResponseWriter, r *request) error {
	app, err := b.apps.find(r.Context(), r.app())
	if err != nil {
		return err
	}
	counts, missing := b.countMachines(r.Context(), &app)
	showSilent(w.Header(), missing)
	return writeJSON(w, http.StatusOK, machinesapi.FromApp(app, counts.of(&app)))
}

// listApps lists the apps that the caller may use.
func (b *Broker) listApps(w http.ResponseWriter, r *request) error {
	counts, _ := b.countMachines(r.Context(), nil)
	apps, missing, err := b.apps.list(r.Context(), counts)
	if err != nil {
		return err
	}
	showSilent(w.Header(), missing)
	org := r.URL.Query().Get("org_slug")
	list := machinesapi.AppList{Apps: []machinesapi.App{}}
	for _, app := range apps {
		if (org == "" || org == app.Org) && r.who.may(app) {
			list.Apps = append(list.Apps, machinesapi.FromApp(app, counts.of(&app)))
		}
	}
	list.Total = len(list.Apps)
	return writeJSON(w, http.StatusOK, list)
}
