package tenant

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// ReleaseView stores releases.
type ReleaseView interface {
	// Releases returns the releases of the app with the given ID, in any order.
	Releases(ctx context.Context, app string) ([]release.Release, error)
	// Deployed returns the IDs of all apps that have releases.
	Deployed(ctx context.Context) ([]string, error)
	// PutRelease stores a release. It has the same durability guarantee as PutApp in lookup.AppView.
	PutRelease(ctx context.Context, r *release.Release) error
	// DropReleases deletes releases.
	DropReleases(ctx context.Context, ids []release.ID) error
}

// KeptReleases is the maximum number of releases kept for each app. The oldest ones are deleted first.
const KeptReleases = 50

// Releases serves the endpoints of releases.
type Releases struct {
	View ReleaseView
	Apps *lookup.Apps
	Now  func() time.Time
}

const (
	releasesPath = endpoint.OneApp + "/releases"
	oneRelease   = releasesPath + "/{release}"
)

// Routes returns the handler's routes.
func (h *Releases) Routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET "+releasesPath, endpoint.App, h.list).Writes(machinesapi.ReleaseList{}).Asks("limit"),
		endpoint.On("POST "+releasesPath, endpoint.App, h.create).Reads(machinesapi.CreateRelease{}).Makes(release.Release{}),
		endpoint.On("GET "+releasesPath+"/current", endpoint.App, h.current).Writes(release.Release{}),
		endpoint.On("GET "+oneRelease, endpoint.App, h.get).Writes(release.Release{}),
		endpoint.On("PATCH "+oneRelease, endpoint.App, h.change).Reads(machinesapi.ChangeRelease{}).Writes(release.Release{}),
	}
}

// of returns the app in the request's path and the app's releases, oldest first and with their version numbers set.
func (h *Releases) of(r *endpoint.Request) (bourse.App, []release.Release, error) {
	app, err := h.Apps.FindCached(r.Context(), r.App())
	if err != nil {
		return app, nil, err
	}
	list, err := h.View.Releases(r.Context(), app.ID)
	if err != nil {
		return app, nil, err
	}
	release.Number(list)
	return app, list, nil
}

// list lists an app's releases, newest first.
func (h *Releases) list(w http.ResponseWriter, r *endpoint.Request) error {
	limit, err := endpoint.QueryInt(r, "limit")
	if err != nil {
		return err
	}
	if limit < 0 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid limit %d: use 1 to %d", limit, KeptReleases)
	}
	_, list, err := h.of(r)
	if err != nil {
		return err
	}
	slices.Reverse(list)
	if limit > 0 {
		list = list[:min(limit, len(list))]
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.ReleaseList{Releases: append([]release.Release{}, list...)})
}

// create records a new release, and deletes the oldest ones if the app has too many.
func (h *Releases) create(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.CreateRelease
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	app, list, err := h.of(r)
	if err != nil {
		return err
	}
	now := h.Now().UTC()
	made := release.Release{
		ID: release.NewID(), App: app.Name, AppID: app.ID, Version: release.Next(list), Status: release.Pending,
		Strategy: strings.ToLower(clean(in.Strategy)), Description: clean(in.Description), Image: clean(in.Image), Definition: object(in.Definition),
		Metadata: object(in.Metadata), User: r.Who.Name, CreatedAt: now, UpdatedAt: now,
	}
	if in.Status != "" {
		made.Status = in.Status
	}
	if err := made.Validate(); err != nil {
		return err
	}
	if err := h.View.PutRelease(r.Context(), &made); err != nil {
		return err
	}
	var old []release.ID
	for i := range max(0, len(list)+1-KeptReleases) {
		old = append(old, list[i].ID)
	}
	if len(old) > 0 {
		if err := h.View.DropReleases(r.Context(), old); err != nil {
			return err
		}
	}
	return endpoint.WriteJSON(w, http.StatusCreated, made)
}

// current returns the latest complete release.
func (h *Releases) current(w http.ResponseWriter, r *endpoint.Request) error {
	_, list, err := h.of(r)
	if err != nil {
		return err
	}
	for _, one := range slices.Backward(list) {
		if one.Status == release.Complete {
			return endpoint.WriteJSON(w, http.StatusOK, one)
		}
	}
	return bourse.Errorf(bourse.CodeNotFound, "release not found: app %s has no complete release", r.App())
}

// find returns the release in the request's path, and all earlier releases of its app.
func (h *Releases) find(r *endpoint.Request) (found release.Release, before []release.Release, err error) {
	_, list, err := h.of(r)
	if err != nil {
		return release.Release{}, nil, err
	}
	id := release.ID(strings.ToUpper(r.PathValue("release")))
	for i := range list {
		if list[i].ID == id {
			return list[i], list[:i], nil
		}
	}
	return release.Release{}, nil, bourse.Errorf(bourse.CodeNotFound, "release not found")
}

func (h *Releases) get(w http.ResponseWriter, r *endpoint.Request) error {
	found, _, err := h.find(r)
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, found)
}

// change records the progress of a deployment.
func (h *Releases) change(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.ChangeRelease
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	found, before, err := h.find(r)
	if err != nil {
		return err
	}
	if in.Status != "" {
		found.Status = in.Status
	}
	if metadata := object(in.Metadata); metadata != nil {
		found.Metadata = metadata
	}
	found.UpdatedAt = h.Now().UTC()
	if err := found.Validate(); err != nil {
		return err
	}
	if in.Status == release.Running || in.Status == release.Complete {
		if err := h.interrupt(r.Context(), before); err != nil {
			return err
		}
	}
	if err := h.View.PutRelease(r.Context(), &found); err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, found)
}

// interrupt marks all pending and running releases in list as interrupted. It is called when a later release starts to
// run. A client sets its release to running only while it holds the app's machine leases, so the clients that created
// the releases in list were killed or have lost their leases.
func (h *Releases) interrupt(ctx context.Context, list []release.Release) error {
	for i := range list {
		if r := &list[i]; r.Status == release.Pending || r.Status == release.Running {
			r.Status, r.UpdatedAt = release.Interrupted, h.Now().UTC()
			if err := h.View.PutRelease(ctx, r); err != nil {
				return err
			}
		}
	}
	return nil
}

// object returns raw, or nil if it is not a JSON object.
func object(raw json.RawMessage) json.RawMessage {
	if len(raw) == 0 || raw[0] != '{' {
		return nil
	}
	return raw
}

// clean removes control characters from s, because clients print s.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}

// Deployed returns the IDs of the apps that have releases. If app is not nil, it considers only that app. If the view
// cannot be read, the result is empty.
func (h *Releases) Deployed(ctx context.Context, app *bourse.App) map[string]bool {
	if app != nil {
		list, err := h.View.Releases(ctx, app.ID)
		return map[string]bool{app.ID: err == nil && len(list) > 0}
	}
	ids, _ := h.View.Deployed(ctx)
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out
}

// Forget deletes the releases of a deleted app.
func (h *Releases) Forget(ctx context.Context, app *bourse.App) error {
	list, err := h.View.Releases(ctx, app.ID)
	if err != nil || len(list) == 0 {
		return err
	}
	ids := make([]release.ID, len(list))
	for i := range list {
		ids[i] = list[i].ID
	}
	return h.View.DropReleases(ctx, ids)
}
