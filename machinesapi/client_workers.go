package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Workers lists every worker that the broker knows, by region and id.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	out, err := ask[WorkerList](ctx, c, call{method: http.MethodGet, path: path("workers")})
	return out.Workers, err
}

// Worker shows one worker. Codes: not_found.
func (c *Client) Worker(ctx context.Context, id bourse.WorkerID) (Worker, error) {
	return ask[Worker](ctx, c, call{method: http.MethodGet, path: path("workers", string(id))})
}

// Operator returns the calls that change workers, for who runs the cluster.
func (c *Client) Operator() Operator { return Operator{c} }

// Operator are the calls that change workers.
type Operator struct{ c *Client }

// Cordon has a worker refuse every new order from the reply on, or take orders again. What
// it has goes on. Codes: not_found, unavailable (it does not answer).
func (o Operator) Cordon(ctx context.Context, id bourse.WorkerID, cordon bool) (Worker, error) {
	verb := "cordon"
	if !cordon {
		verb = "uncordon"
	}
	return ask[Worker](ctx, o.c, call{method: http.MethodPost, path: path("workers", string(id), verb)})
}

// Forget has the cluster forget a worker that is down or stopped, with its
// machines and volumes, and returns what it was. Codes: not_found,
// failed_precondition (it is there).
func (o Operator) Forget(ctx context.Context, id bourse.WorkerID) (Worker, error) {
	return ask[Worker](ctx, o.c, call{method: http.MethodDelete, path: path("workers", string(id))})
}

// Runs lists a worker's durable runs, ended ones too when asked for. Codes:
// not_found.
func (c *Client) Runs(ctx context.Context, id bourse.WorkerID, ended bool) ([]Run, error) {
	out, err := ask[RunList](ctx, c, call{method: http.MethodGet, path: path("workers", string(id), "runs"), query: query("ended", yes(ended))})
	return out.Runs, err
}

// RunVerb is what a person does with a run.
type RunVerb string

// The verbs of runs.
const (
	RunRetry  RunVerb = "retry"  // a stuck one tries its step again
	RunSkip   RunVerb = "skip"   // a stuck one goes on with the next step
	RunCancel RunVerb = "cancel" // it ends
)

// ActOnRun does something with a run of a worker. Codes: not_found,
// failed_precondition.
func (c *Client) ActOnRun(ctx context.Context, id bourse.WorkerID, run string, verb RunVerb) (Run, error) {
	return ask[Run](ctx, c, call{method: http.MethodPost, path: path("workers", string(id), "runs", run, string(verb))})
}
