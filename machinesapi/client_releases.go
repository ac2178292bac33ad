package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/release"
)

// AppReleases are the releases of one app, as a client reaches them.
type AppReleases struct {
	Client *Client
	App    bourse.AppName
}

// Releases returns the client's way to an app's releases.
func (c *Client) Releases(app bourse.AppName) AppReleases { return AppReleases{c, app} }

func (r AppReleases) path(more ...string) string {
	return path(append([]string{"apps", string(r.App), "releases"}, more...)...)
}

// List lists them, newest first: limit 0 means all that are kept. Codes: not_found
// (the app).
func (r AppReleases) List(ctx context.Context, limit int) ([]release.Release, error) {
	query := url.Values{}
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	var out ReleaseList
	_, err := r.Client.do(ctx, call{method: http.MethodGet, path: r.path(), query: query, out: &out})
	return out.Releases, err
}

// Current returns the newest that is complete. Codes: not_found (the app, or it has
// none).
func (r AppReleases) Current(ctx context.Context) (release.Release, error) {
	var out release.Release
	_, err := r.Client.do(ctx, call{method: http.MethodGet, path: r.path("current"), out: &out})
	return out, err
}

// Create records that the app is deployed. Codes: invalid, not_found (the app).
func (r AppReleases) Create(ctx context.Context, in CreateRelease) (release.Release, error) {
	var out release.Release
	_, err := r.Client.do(ctx, call{method: http.MethodPost, path: r.path(), in: in, out: &out})
	return out, err
}

// Change records how a deploy goes. Codes: invalid, not_found.
func (r AppReleases) Change(ctx context.Context, id release.ID, in ChangeRelease) (release.Release, error) {
	var out release.Release
	_, err := r.Client.do(ctx, call{method: http.MethodPatch, path: r.path(string(id)), in: in, out: &out})
	return out, err
}
