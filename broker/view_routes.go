package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"
	"github.com/bourse-dev/bourse/machinesapi"
)

// Queries runs SQL queries on the view for HTTP clients. Its methods limit how much they read and write, flush streams,
// and return when the request's context is done. If a method fails before it has written anything, the caller must send
// the returned error to the client. If a method fails later, the caller must break the connection.
type Queries interface {
	// Query serves POST /v1/view/queries.
	Query(w http.ResponseWriter, r *http.Request) error
	// Subscribe serves POST /v1/view/subscriptions.
	Subscribe(w http.ResponseWriter, r *http.Request) error
	// Resume serves GET /v1/view/subscriptions/{id}.
	Resume(w http.ResponseWriter, r *http.Request) error
}

// errNoQueries returns the error that a broker reports if it cannot query the view.
func errNoQueries() error {
	return bourse.Errorf(bourse.CodeUnavailable, "this broker has no view to query")
}

// viewHandler serves the view's endpoints to operators of the cluster.
type viewHandler struct {
	*Config

	machines *lookup.Machines
	volumes  *lookup.Volumes
}

func (h *viewHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("POST /v1/view/queries", endpoint.Cluster, h.ask(Queries.Query)).Reads(machinesapi.ViewQuery{}).Streams(machinesapi.ViewLine{}),
		endpoint.On("POST /v1/view/subscriptions", endpoint.Cluster, h.ask(Queries.Subscribe)).Reads(machinesapi.ViewQuery{}).Streams(machinesapi.ViewLine{}).Answers(http.StatusCreated),
		endpoint.On("GET /v1/view/subscriptions/{id}", endpoint.Cluster, h.ask(Queries.Resume)).Streams(machinesapi.ViewLine{}).Asks("from"),
		endpoint.On("GET /v1/view/health", endpoint.Cluster, h.viewHealth).Writes(machinesapi.ViewHealth{}),
	}
}

func (h *viewHandler) ask(do func(Queries, http.ResponseWriter, *http.Request) error) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		if h.Queries == nil {
			return errNoQueries()
		}
		r.Body = http.MaxBytesReader(w, r.Body, machinesapi.MaxBody)
		if r.Method == http.MethodPost { // not needed to resume a subscription, which then receives only changes
			lookup.AwaitView(r.Context(), h.machines, h.volumes)
		}
		return do(h.Queries, w, r.Request)
	}
}

func (h *viewHandler) viewHealth(w http.ResponseWriter, r *endpoint.Request) error {
	if h.Health == nil {
		return errNoQueries()
	}
	health := machinesapi.CompareViews(append(h.Health(r.Context()), h.missing(r.Context())...), h.Now())
	for i := range health.Members {
		health.Members[i].Heads = nil // the heads are needed only for the comparison, and are long in a large cluster
	}
	return endpoint.WriteJSON(w, http.StatusOK, health)
}

// missing returns the workers that should be members but are not. It omits stopped workers.
func (h *viewHandler) missing(ctx context.Context) []machinesapi.MemberHealth {
	var out []machinesapi.MemberHealth
	_, absent := h.Directory.All()
	for _, w := range h.machines.AbsentWorkers(ctx, absent) {
		if w.Status == machinesapi.WorkerDown {
			out = append(out, machinesapi.MemberHealth{
				ID: w.ID, Role: bourse.RoleWorker, Region: w.Region, DownSince: w.Since, ViewLag: machinesapi.ViewLag{State: machinesapi.ViewDown},
			})
		}
	}
	return out
}
