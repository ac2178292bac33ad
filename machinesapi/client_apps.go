package machinesapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/bourse-dev/bourse"
)

// CreateApp makes an app. Codes: invalid, already_exists (unless the request's
// idempotency key is that of the one that is there).
func (c *Client) CreateApp(ctx context.Context, in CreateApp) (App, error) {
	var out App
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("apps"), in: in, out: &out})
	return out, err
}

// App finds an app. Codes: not_found.
func (c *Client) App(ctx context.Context, app bourse.AppName) (App, error) {
	var out App
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("apps", string(app)), out: &out})
	return out, err
}

// Apps lists the apps of an organization, of all when org is empty, by name.
func (c *Client) Apps(ctx context.Context, org string) ([]App, error) {
	query := url.Values{}
	if org != "" {
		query.Set("org_slug", org)
	}
	var out AppList
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("apps"), query: query, out: &out})
	return out.Apps, err
}

// DeleteApp deletes an app with its machines; force stops those that run.
// Codes: not_found, failed_precondition (machines run).
func (c *Client) DeleteApp(ctx context.Context, app bourse.AppName, force bool) error {
	query := url.Values{"force": {strconv.FormatBool(force)}} // without it, machines that run are no reason to refuse
	_, err := c.do(ctx, call{method: http.MethodDelete, path: path("apps", string(app)), query: query})
	return err
}
