package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// workerHandler serves the worker and run endpoints, for operators of the cluster.
type workerHandler struct {
	*Config
	machines *lookup.Machines
}

func (h *workerHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.On("GET /v1/workers", endpoint.Cluster, h.listWorkers).Writes(machinesapi.WorkerList{}),
		endpoint.On("GET "+endpoint.OneWorker, endpoint.Cluster, h.getWorker).Writes(machinesapi.Worker{}),
		endpoint.On("GET /metrics", endpoint.Metrics, h.metrics).Sends("text/plain"),
		endpoint.On("GET /v1/metrics/targets", endpoint.Metrics, h.targets).Writes([]endpoint.Target{}),
		endpoint.On("GET "+endpoint.OneWorker+"/metrics", endpoint.Metrics, h.relayMetrics).Sends("text/plain"),
		endpoint.On("GET /v1/proxies/{proxy}/metrics", endpoint.Metrics, h.relayProxyMetrics).Sends("text/plain"),
		endpoint.On("POST "+endpoint.OneWorker+"/cordon", endpoint.Cluster, h.cordon(true)).ReadsNothing().Writes(machinesapi.Worker{}),
		endpoint.On("POST "+endpoint.OneWorker+"/uncordon", endpoint.Cluster, h.cordon(false)).ReadsNothing().Writes(machinesapi.Worker{}),
		endpoint.On("GET "+endpoint.OneWorker+"/runs", endpoint.Cluster, h.listRuns).Writes(machinesapi.RunList{}).Asks("ended"),
		endpoint.On("POST "+endpoint.OneWorker+"/runs/{run}/retry", endpoint.Cluster, h.actOnRun(&fabric.RunRetry)).ReadsNothing().Writes(machinesapi.Run{}),
		endpoint.On("POST "+endpoint.OneWorker+"/runs/{run}/skip", endpoint.Cluster, h.actOnRun(&fabric.RunSkip)).ReadsNothing().Writes(machinesapi.Run{}),
		endpoint.On("POST "+endpoint.OneWorker+"/runs/{run}/cancel", endpoint.Cluster, h.actOnRun(&fabric.RunCancel)).ReadsNothing().Writes(machinesapi.Run{}),
	}
}

// listWorkers lists all workers of the cluster. It asks each member for its facts; members that do not answer are
// listed without facts.
func (h *workerHandler) listWorkers(w http.ResponseWriter, r *endpoint.Request) error {
	members, absent := h.Directory.All()
	answers := lookup.Ask(r.Context(), h.Timeout, members, lookup.Asking(h.Workers, &fabric.WorkerFacts, struct{}{}))
	list := machinesapi.WorkerList{Workers: make([]machinesapi.Worker, len(answers))}
	for i := range answers {
		list.Workers[i] = showWorker(&answers[i])
	}
	list.Workers = append(list.Workers, h.machines.AbsentWorkers(r.Context(), absent)...)
	slices.SortFunc(list.Workers, func(x, y machinesapi.Worker) int {
		return cmp.Or(cmp.Compare(x.Region, y.Region), cmp.Compare(x.ID, y.ID))
	})
	endpoint.ListUnreachable(w.Header(), lookup.Unresponsive(answers))
	return endpoint.WriteJSON(w, http.StatusOK, list)
}

func (h *workerHandler) getWorker(w http.ResponseWriter, r *endpoint.Request) error {
	member, away := h.find(r)
	if away != nil {
		return endpoint.WriteJSON(w, http.StatusOK, away)
	}
	if member == nil {
		return errNoWorker(r)
	}
	answers := lookup.Ask(r.Context(), h.Timeout, []bourse.Member{*member}, lookup.Asking(h.Workers, &fabric.WorkerFacts, struct{}{}))
	return endpoint.WriteJSON(w, http.StatusOK, showWorker(&answers[0]))
}

func showWorker(a *lookup.Answer[bourse.Facts]) machinesapi.Worker {
	m := &a.From
	out := machinesapi.Worker{
		ID: m.ID, Region: m.Region, Address: m.Address, Tag: m.Tag.String(), Leaving: m.Leaving, Status: machinesapi.WorkerOK,
	}
	if a.Err != nil {
		out.Status, out.Error = machinesapi.WorkerUnreachable, bourse.MessageOf(a.Err)
		return out
	}
	out.Facts = &a.Got
	return out
}

// cordon returns a handler that makes a worker refuse new orders, or accept them again.
func (h *workerHandler) cordon(cordon bool) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		member, err := h.worker(r)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
		defer cancel()
		facts, err := fabric.WorkerCordon.Call(ctx, h.Workers, member, fabric.CordonRequest{Cordon: cordon, By: r.Who.Name})
		if err != nil {
			return endpoint.WorkerError(r.Context(), member.ID, endpoint.Changing, err)
		}
		return endpoint.WriteJSON(w, http.StatusOK, showWorker(&lookup.Answer[bourse.Facts]{From: member, Got: facts}))
	}
}

// find looks up the worker in the request's path. It returns a member if the worker is a member, an API object if the
// worker is absent, and two nil values otherwise.
func (h *workerHandler) find(r *endpoint.Request) (*bourse.Member, *machinesapi.Worker) {
	id := bourse.WorkerID(r.PathValue("worker"))
	here, absent := h.Directory.All()
	if i := slices.IndexFunc(here, func(m bourse.Member) bool { return m.ID == id }); i >= 0 {
		m := here[i]
		return &m, nil
	}
	i := slices.IndexFunc(absent, func(a bourse.Absence) bool { return a.ID == id })
	if i < 0 {
		return nil, nil
	}
	list := h.machines.AbsentWorkers(r.Context(), absent[i:i+1])
	if len(list) == 0 { // the worker has been removed
		return nil, nil
	}
	return nil, &list[0]
}

// worker returns the worker in the request's path, which must be a member. Errors: not_found,
// unavailable.
func (h *workerHandler) worker(r *endpoint.Request) (bourse.Member, error) {
	member, away := h.find(r)
	switch {
	case member != nil:
		return *member, nil
	case away != nil:
		return bourse.Member{}, bourse.Errorf(bourse.CodeUnavailable, "%s", lookup.UnreachableReason(away))
	}
	return bourse.Member{}, errNoWorker(r)
}

func errNoWorker(r *endpoint.Request) error {
	return bourse.Errorf(bourse.CodeNotFound, "worker %s not found", bourse.Quoted(r.PathValue("worker")))
}

// metrics replies with this broker's own metrics.
func (h *workerHandler) metrics(w http.ResponseWriter, r *endpoint.Request) error {
	h.Metrics.ServeHTTP(w, r.Request)
	return nil
}

func (h *workerHandler) targets(w http.ResponseWriter, r *endpoint.Request) error {
	here, away := h.Directory.All()
	return endpoint.WriteJSON(w, http.StatusOK, endpoint.Targets(r.Host, here, away, h.proxies()))
}

func (h *workerHandler) relayMetrics(w http.ResponseWriter, r *endpoint.Request) error {
	member, err := h.worker(r)
	if err != nil {
		return err
	}
	return endpoint.WorkerError(r.Context(), member.ID, endpoint.Reading, endpoint.Relay(w, r.Request, h.Workers, member))
}

func (h *workerHandler) relayProxyMetrics(w http.ResponseWriter, r *endpoint.Request) error {
	list := h.proxies()
	i := slices.IndexFunc(list, func(m bourse.Member) bool { return string(m.ID) == r.PathValue("proxy") })
	if i < 0 {
		return bourse.Errorf(bourse.CodeNotFound, "proxy %s not found", bourse.Quoted(r.PathValue("proxy")))
	}
	return endpoint.Relay(w, r.Request, h.Workers, list[i])
}

func (h *workerHandler) listRuns(w http.ResponseWriter, r *endpoint.Request) error {
	ended, err := endpoint.QueryBool(r, "ended")
	if err != nil {
		return err
	}
	member, err := h.worker(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	runs, err := fabric.RunList.Call(ctx, h.Workers, member, fabric.RunsQuery{Ended: ended})
	if err != nil {
		return endpoint.WorkerError(r.Context(), member.ID, endpoint.Reading, err)
	}
	list := machinesapi.RunList{Runs: make([]machinesapi.Run, len(runs))}
	for i, run := range runs {
		list.Runs[i] = machinesapi.Run(run)
	}
	return endpoint.WriteJSON(w, http.StatusOK, list)
}

// actOnRun returns a handler for an action on one run.
func (h *workerHandler) actOnRun(do *fabric.Verb[string, fabric.Run]) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		member, err := h.worker(r)
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
		defer cancel()
		run, err := do.Call(ctx, h.Workers, member, r.PathValue("run"))
		if bourse.CodeOf(err) == bourse.CodeNotFound {
			return bourse.Errorf(bourse.CodeNotFound, "run %s not found on worker %s", bourse.Quoted(r.PathValue("run")), member.ID)
		}
		if err != nil {
			return endpoint.WorkerError(r.Context(), member.ID, endpoint.Changing, err)
		}
		return endpoint.WriteJSON(w, http.StatusOK, machinesapi.Run(run))
	}
}
