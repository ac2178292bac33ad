package machinesapi

import (
	"context"
	"net/http"
	"net/url"

	"github.com/bourse-dev/bourse"
)

// Workers lists every worker that the broker knows, by region and id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	var out WorkerList
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("workers"), out: &out})
	return out.Workers, err
}

// Worker shows one worker. Codes: not_found.
func (c *Client) Worker(ctx context.Context, id bourse.WorkerID) (Worker, error) {
	var out Worker
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("workers", string(id)), out: &out})
	return out, err
}

// Runs lists a worker's durable runs, ended ones too when asked for. Codes:
// not_found.
func (c *Client) Runs(ctx context.Context, id bourse.WorkerID, ended bool) ([]Run, error) {
	query := url.Values{}
	if ended {
		query.Set("ended", "true")
	}
	var out RunList
	_, err := c.do(ctx, call{method: http.MethodGet, path: path("workers", string(id), "runs"), query: query, out: &out})
	return out.Runs, err
}

// RetryRun makes a stuck run try its step again. Codes: not_found,
// failed_precondition.
func (c *Client) RetryRun(ctx context.Context, id bourse.WorkerID, run string) (Run, error) {
	return c.actOnRun(ctx, id, run, "retry")
}

// SkipRun makes a stuck run continue after its step. Codes: not_found,
// failed_precondition.
func (c *Client) SkipRun(ctx context.Context, id bourse.WorkerID, run string) (Run, error) {
	return c.actOnRun(ctx, id, run, "skip")
}

// CancelRun ends a run. Codes: not_found, failed_precondition.
func (c *Client) CancelRun(ctx context.Context, id bourse.WorkerID, run string) (Run, error) {
	return c.actOnRun(ctx, id, run, "cancel")
}

func (c *Client) actOnRun(ctx context.Context, id bourse.WorkerID, run, verb string) (Run, error) {
	var out Run
	_, err := c.do(ctx, call{method: http.MethodPost, path: path("workers", string(id), "runs", run, verb), out: &out})
	return out, err
}
