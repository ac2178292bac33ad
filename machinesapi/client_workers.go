package machinesapi

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
)

// Workers lists all workers that the broker knows, sorted by region and ID.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	out, err := ask[WorkerList](ctx, c, call{method: http.MethodGet, path: path("workers")})
	return out.Workers, err
}

// Worker returns one worker. Errors: not_found.
func (c *Client) Worker(ctx context.Context, id bourse.WorkerID) (Worker, error) {
	return ask[Worker](ctx, c, call{method: http.MethodGet, path: path("workers", string(id))})
}

// Operator returns a client for the calls that change workers or members.
func (c *Client) Operator() Operator { return Operator{c} }

// Operator makes calls that change workers or members. They require a token for the whole cluster.
type Operator struct{ c *Client }

// Cordon makes a worker refuse all new orders or, if cordon is false, makes it accept orders again. The
// worker's machines are not affected. Errors: not_found, unavailable (the worker does not answer).
func (o Operator) Cordon(ctx context.Context, id bourse.WorkerID, cordon bool) (Worker, error) {
	verb := "cordon"
	if !cordon {
		verb = "uncordon"
	}
	return ask[Worker](ctx, o.c, call{method: http.MethodPost, path: path("workers", string(id), verb)})
}

// Members lists the servers of the cluster, including removed ones. They are sorted by role,
// region and ID.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	out, err := ask[MemberList](ctx, c, call{method: http.MethodGet, path: path("members")})
	return out.Members, err
}

// RemoveMember removes a server from the cluster and returns the server's last state. If the server
// is a worker, its machines and volumes are removed as well. If servers have certificates, the
// removed server is locked out until it joins again. If force is set and servers have certificates,
// the server is removed even if it is running or unknown. Errors: not_found, failed_precondition
// (the server is running, or is the broker that was called).
func (o Operator) RemoveMember(ctx context.Context, id bourse.WorkerID, force bool) (Member, error) {
	return ask[Member](ctx, o.c, call{method: http.MethodDelete, path: path("members", string(id)), query: query("force", boolParam(force))})
}

// Runs lists a worker's durable runs. If ended is set, the list includes runs that have ended.
// Errors: not_found.
func (c *Client) Runs(ctx context.Context, id bourse.WorkerID, ended bool) ([]Run, error) {
	out, err := ask[RunList](ctx, c, call{method: http.MethodGet, path: path("workers", string(id), "runs"), query: query("ended", boolParam(ended))})
	return out.Runs, err
}

// RunVerb is an action that an operator performs on a run.
type RunVerb string

// Actions on runs.
const (
	RunRetry  RunVerb = "retry"  // retries the failed step of a stuck run
	RunSkip   RunVerb = "skip"   // continues a stuck run with the next step
	RunCancel RunVerb = "cancel" // ends a run
)

// ActOnRun performs an action on a worker's run. Errors: not_found, failed_precondition.
func (c *Client) ActOnRun(ctx context.Context, id bourse.WorkerID, run string, verb RunVerb) (Run, error) {
	return ask[Run](ctx, c, call{method: http.MethodPost, path: path("workers", string(id), "runs", run, string(verb))})
}
