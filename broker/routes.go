package broker

import (
	"net/http"
	"slices"
	"strings"

	"github.com/bourse-dev/bourse"
)

// route is one endpoint: its pattern, who may call it, and what serves it.
type route struct {
	pattern string
	needs   scope
	serve   func(*Broker, http.ResponseWriter, *request) error
}

const (
	oneApp     = "/v1/apps/{app}"
	machines   = oneApp + "/machines"
	oneMachine = machines + "/{machine}"
	volumes    = oneApp + "/volumes"
	oneVolume  = volumes + "/{volume}"
	oneWorker  = "/v1/workers/{worker}"

	oneReservation = "/v1/reservations/{reservation}"
)

// routes is the whole API. Updates, versions and secrets will be further lines
// and files of their own.
func routes() []route {
	return slices.Concat(routesOfApps(), routesOfMachines(), routesOfVolumes(), routesOfCluster())
}

func routesOfApps() []route {
	return []route{
		{"GET /v1/apps", scopeToken, (*Broker).listApps},
		{"POST /v1/apps", scopeToken, (*Broker).createApp},
		{"GET " + oneApp, scopeApp, (*Broker).getApp},
		{"DELETE " + oneApp, scopeApp, (*Broker).deleteApp},
	}
}

func routesOfMachines() []route {
	return []route{
		{"GET " + machines, scopeApp, (*Broker).listMachines},
		{"POST " + machines, scopeApp, ordering(machineLease, (*Broker).createMachine)},
		{"POST " + oneApp + "/quotes", scopeApp, ordering(machineLease, (*Broker).quoteMachine)},
		{"GET " + oneMachine, scopeApp, (*Broker).getMachine},
		{"DELETE " + oneMachine, scopeApp, (*Broker).destroyMachine},
		{"POST " + oneMachine + "/start", scopeApp, (*Broker).startMachine},
		{"POST " + oneMachine + "/stop", scopeApp, (*Broker).stopMachine},
		{"POST " + oneMachine + "/restart", scopeApp, (*Broker).restartMachine},
		{"POST " + oneMachine + "/signal", scopeApp, (*Broker).signalMachine},
		{"POST " + oneMachine + "/cordon", scopeApp, (*Broker).cordonMachine},
		{"POST " + oneMachine + "/uncordon", scopeApp, (*Broker).uncordonMachine},
		{"POST " + oneMachine + "/exec", scopeApp, (*Broker).execMachine},
		{"GET " + oneMachine + "/wait", scopeApp, (*Broker).waitMachine},
		{"GET " + oneMachine + "/events", scopeApp, (*Broker).machineEvents},
		{"GET " + oneMachine + "/logs", scopeApp, (*Broker).machineLogs},
		{"GET " + oneMachine + "/usage", scopeApp, (*Broker).machineUsage},
		{"POST " + oneMachine + "/exec/stream", scopeApp, (*Broker).execStream},
		{"POST " + oneMachine + "/tunnel", scopeApp, (*Broker).tunnel},
		{"GET " + oneMachine + "/lease", scopeApp, (*Broker).getLease},
		{"POST " + oneMachine + "/lease", scopeApp, (*Broker).acquireLease},
		{"DELETE " + oneMachine + "/lease", scopeApp, (*Broker).releaseLease},
		{"GET " + oneMachine + "/metadata", scopeApp, (*Broker).getMetadata},
		{"PUT " + oneMachine + "/metadata", scopeApp, (*Broker).patchMetadata},
		{"PATCH " + oneMachine + "/metadata", scopeApp, (*Broker).patchMetadata},
		{"GET " + oneMachine + "/metadata/{key}", scopeApp, (*Broker).getMetadataKey},
		{"POST " + oneMachine + "/metadata/{key}", scopeApp, (*Broker).setMetadataKey},
		{"DELETE " + oneMachine + "/metadata/{key}", scopeApp, (*Broker).deleteMetadataKey},
		{"POST " + oneApp + "/tasks", scopeApp, ordering(taskLease, (*Broker).runTask)},
		{"POST /schedule", scopeToken, ordering(taskLease, (*Broker).schedule)},
	}
}

func routesOfVolumes() []route {
	return []route{
		{"GET " + volumes, scopeApp, (*Broker).listVolumes},
		{"POST " + volumes, scopeApp, ordering(machineLease, (*Broker).createVolume)},
		{"GET " + oneVolume, scopeApp, (*Broker).getVolume},
		{"PUT " + oneVolume, scopeApp, (*Broker).updateVolume},
		{"DELETE " + oneVolume, scopeApp, (*Broker).destroyVolume},
		{"PUT " + oneVolume + "/extend", scopeApp, (*Broker).extendVolume},
		{"GET " + oneVolume + "/snapshots", scopeApp, (*Broker).listSnapshots},
		{"POST " + oneVolume + "/snapshots", scopeApp, (*Broker).createSnapshot},
		{"GET /v1/orgs/{org}/volumes", scopeToken, (*Broker).orgVolumes},
	}
}

func routesOfCluster() []route {
	return []route{
		{"GET /v1/health", scopeNone, (*Broker).health},
		{"GET /v1/platform/regions", scopeNone, (*Broker).regions},
		{"GET /v1/images", scopeCluster, (*Broker).listImages},
		{"POST /v1/images/pull", scopeCluster, (*Broker).pullImage},
		{"POST /v1/images/prune", scopeCluster, (*Broker).pruneImages},
		{"GET /v1/orders/{order}", scopeToken, (*Broker).getOrder},
		{"POST /v1/reservations", scopeToken, ordering(machineLease, (*Broker).createReservation)},
		{"GET " + oneReservation, scopeToken, (*Broker).getReservation},
		{"PATCH " + oneReservation, scopeToken, (*Broker).extendReservation},
		{"DELETE " + oneReservation, scopeToken, (*Broker).releaseReservation},
		{"GET /v1/workers", scopeCluster, (*Broker).listWorkers},
		{"GET " + oneWorker, scopeCluster, (*Broker).getWorker},
		{"GET " + oneWorker + "/runs", scopeCluster, (*Broker).listRuns},
		{"POST " + oneWorker + "/runs/{run}/retry", scopeCluster, (*Broker).retryRun},
		{"POST " + oneWorker + "/runs/{run}/skip", scopeCluster, (*Broker).skipRun},
		{"POST " + oneWorker + "/runs/{run}/cancel", scopeCluster, (*Broker).cancelRun},
		{"POST /v1/view/queries", scopeCluster, (*Broker).queryView},
		{"POST /v1/view/subscriptions", scopeCluster, (*Broker).subscribeView},
		{"GET /v1/view/subscriptions/{id}", scopeCluster, (*Broker).resumeView},
		{"GET /v1/view/health", scopeCluster, (*Broker).viewHealth},
	}
}

// routed puts the table into a mux, with JSON for what it does not know.
func (b *Broker) routed() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range routes() {
		mux.Handle(rt.pattern, b.endpoint(rt))
	}
	mux.Handle(anyPath, b.endpoint(route{anyPath, scopeNone, func(_ *Broker, w http.ResponseWriter, r *request) error {
		return unknownPath(mux, w, r)
	}}))
	return mux
}

const anyPath = "/"

// unknownPath tells a path that exists under other methods from one that does
// not.
func unknownPath(mux *http.ServeMux, w http.ResponseWriter, r *request) error {
	var allowed []string
	for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete} {
		other := http.Request{Method: method, URL: r.URL, Host: r.Host}
		if _, pattern := mux.Handler(&other); pattern != anyPath && pattern != "" {
			allowed = append(allowed, method)
		}
	}
	if len(allowed) == 0 {
		return bourse.Errorf(bourse.CodeNotFound, "no such endpoint: %s %s", r.Method, bourse.Quoted(r.URL.Path))
	}
	w.Header().Set("Allow", strings.Join(allowed, ", "))
	return &reply{status: http.StatusMethodNotAllowed, err: bourse.Errorf(bourse.CodeInvalid,
		"%s is not for %s: use %s", bourse.Quoted(r.URL.Path), r.Method, strings.Join(allowed, ", "))}
}
