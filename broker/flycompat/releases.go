package flycompat

import (
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// restRelease is a release in the REST API. Its id contains the app's name, because clients that
// update a release send only the id.
type restRelease struct {
	ID         string `json:"id"`
	Version    int64  `json:"version"`
	Stable     bool   `json:"stable"`
	InProgress bool   `json:"in_progress"`
	Status     string `json:"status"`
	Strategy   string `json:"strategy"`
	User       string `json:"user"`
	CreatedAt  string `json:"created_at"` // RFC 3339
	Image      string `json:"image_ref"`
}

const rfc3339 = "2006-01-02T15:04:05Z"

func shownRelease(r *release.Release) restRelease {
	return restRelease{
		ID: string(r.ID) + "-" + string(r.App), Version: r.Version, Stable: r.Status == release.Complete, InProgress: inProgress(r), Status: string(r.Status),
		Strategy: strings.ToUpper(r.Strategy), User: r.User, CreatedAt: r.CreatedAt.UTC().Format(rfc3339), Image: r.Image,
	}
}

func inProgress(r *release.Release) bool {
	return r.Status == release.Pending || r.Status == release.Running
}

// releaseOf splits the id of a restRelease into the release's ID and the app's name. Errors:
// not_found.
func releaseOf(id string) (release.ID, bourse.AppName, error) {
	of, app, ok := strings.Cut(id, "-")
	if !ok || release.ID(of).Validate() != nil || bourse.AppName(app).Validate() != nil {
		return "", "", bourse.Errorf(bourse.CodeNotFound, "release not found")
	}
	return release.ID(of), bourse.AppName(app), nil
}

func (c *caller) releases(of bourse.AppName) machinesapi.AppReleases {
	return c.Client.Releases(of)
}

// createRelease serves POST /api/v1/releases.
func createRelease(c *caller, w http.ResponseWriter, r *http.Request) error {
	var in struct {
		App        bourse.AppName  `json:"app_name"`
		Definition json.RawMessage `json:"definition"`
		Image      string          `json:"image"`
		Strategy   string          `json:"strategy"`
	}
	if err := decode(w, r, &in); err != nil {
		return err
	}
	if _, err := c.appOf(r.Context(), in.App); err != nil {
		return err
	}
	made, err := c.releases(in.App).Create(r.Context(), machinesapi.CreateRelease{Strategy: in.Strategy, Image: in.Image, Definition: in.Definition})
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusCreated, map[string]any{"release": shownRelease(&made)})
}

// changeRelease serves PATCH /api/v1/releases/{release}.
func changeRelease(c *caller, w http.ResponseWriter, r *http.Request) error {
	id, app, err := releaseOf(r.PathValue("release"))
	if err != nil {
		return err
	}
	var in machinesapi.ChangeRelease
	if err := decode(w, r, &in); err != nil {
		return err
	}
	changed, err := c.releases(app).Change(r.Context(), id, in)
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shownRelease(&changed))
}

// listReleases serves GET /api/v1/apps/{app}/releases.
func listReleases(c *caller, w http.ResponseWriter, r *http.Request) error {
	limit, err := strconv.Atoi(cmp.Or(r.URL.Query().Get("limit"), "0"))
	if err != nil || limit < 0 {
		return bourse.Errorf(bourse.CodeInvalid, "invalid limit %s: use a non-negative integer", bourse.Quoted(r.URL.Query().Get("limit")))
	}
	app, err := c.appOf(r.Context(), bourse.AppName(r.PathValue("app")))
	if err != nil {
		return err
	}
	list, err := c.releases(app.Name).List(r.Context(), limit)
	if err != nil {
		return err
	}
	out := make([]restRelease, len(list))
	for i := range list {
		out[i] = shownRelease(&list[i])
	}
	return writeJSON(w, http.StatusOK, map[string]any{"releases": out})
}

// currentRelease serves GET /api/v1/apps/{app}/releases/current.
func currentRelease(c *caller, w http.ResponseWriter, r *http.Request) error {
	app, err := c.appOf(r.Context(), bourse.AppName(r.PathValue("app")))
	if err != nil {
		return err
	}
	current, err := c.releases(app.Name).Current(r.Context())
	if err != nil {
		return err
	}
	return writeJSON(w, http.StatusOK, shownRelease(&current))
}

// lastRelease resolves the newest complete release. The result is null if there is none.
func (c *caller) lastRelease(ctx context.Context, app bourse.AppName) (any, error) {
	current, err := c.releases(app).Current(ctx)
	if bourse.CodeOf(err) == bourse.CodeNotFound {
		return nil, nil //nolint:nilnil // null
	}
	if err != nil {
		return nil, err
	}
	return releaseObject(&current), nil
}

// releasesOf resolves an app's releases, newest first.
func (c *caller) releasesOf(ctx context.Context, app bourse.AppName, args arguments) (any, error) {
	list, err := c.releases(app).List(ctx, args.count("first", 0, maxPage))
	out := make([]object, len(list))
	for i := range list {
		out[i] = releaseObject(&list[i])
	}
	return nodes(out), err
}

func releaseObject(r *release.Release) object {
	shown := shownRelease(r)
	return object{
		typename: "Release", "id": shown.ID, "version": shown.Version, "description": cmp.Or(r.Description, "Deploy"), "reason": "deploy",
		"status": shown.Status, "imageRef": shown.Image, "stable": shown.Stable, "inProgress": shown.InProgress, "deploymentStrategy": shown.Strategy,
		"user": object{"id": shown.User, "name": shown.User, "email": shown.User}, "createdAt": shown.CreatedAt, "evaluationId": "",
		"configDefinition": definition(r), "definition": definition(r),
	}
}

// definition returns the app's configuration in a release, exactly as the client sent it.
func definition(r *release.Release) any {
	if len(r.Definition) == 0 {
		return nil
	}
	return r.Definition
}
