package fabric

import (
	"context"
	"net/url"

	"github.com/bourse-dev/bourse"
)

var (
	routeApps      = routeOf(PathApps)
	routeApp       = routeOf(PathApp)
	routeFacts     = routeOf(PathFacts)
	routeRuns      = routeOf(PathRuns)
	routeRunRetry  = routeOf(PathRunRetry)
	routeRunSkip   = routeOf(PathRunSkip)
	routeRunCancel = routeOf(PathRunCancel)
)

// Apps returns every app record that the worker keeps, tombstones included.
func (c *Client) Apps(ctx context.Context, to bourse.Member) ([]bourse.App, error) {
	return exchange[[]bourse.App](ctx, c, to, ask{route: routeApps})
}

// PutApp merges an app's record into the worker's and returns the merge.
func (c *Client) PutApp(ctx context.Context, to bourse.Member, app bourse.App) (bourse.App, error) {
	return exchange[bourse.App](ctx, c, to, ask{route: routeApp, id: string(app.Name), body: app})
}

// Facts returns the worker's facts about itself.
func (c *Client) Facts(ctx context.Context, to bourse.Member) (bourse.Facts, error) {
	return exchange[bourse.Facts](ctx, c, to, ask{route: routeFacts})
}

// Runs lists the worker's runs, those that have ended only when asked for.
func (c *Client) Runs(ctx context.Context, to bourse.Member, ended bool) ([]Run, error) {
	var query url.Values
	if ended {
		query = url.Values{"ended": {"true"}}
	}
	return exchange[[]Run](ctx, c, to, ask{route: routeRuns, query: query})
}

// RunRetry has a stuck run try its step again.
func (c *Client) RunRetry(ctx context.Context, to bourse.Member, run string) (Run, error) {
	return exchange[Run](ctx, c, to, ask{route: routeRunRetry, id: run, body: struct{}{}})
}

// RunSkip has a stuck run go on with its next step.
func (c *Client) RunSkip(ctx context.Context, to bourse.Member, run string) (Run, error) {
	return exchange[Run](ctx, c, to, ask{route: routeRunSkip, id: run, body: struct{}{}})
}

// RunCancel asks a run to end.
func (c *Client) RunCancel(ctx context.Context, to bourse.Member, run string) (Run, error) {
	return exchange[Run](ctx, c, to, ask{route: routeRunCancel, id: run, body: struct{}{}})
}
