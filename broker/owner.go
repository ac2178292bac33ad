package broker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"

	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/broker/lookup"

	"github.com/bourse-dev/bourse/broker/tenant"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// machineHandler serves the endpoints for existing machines.
type machineHandler struct {
	*Config
	gate     *endpoint.Gate
	apps     *lookup.Apps
	quota    *lookup.Checker
	machines *lookup.Machines
	secrets  *tenant.Secrets
}

func (h *machineHandler) routes() []endpoint.Route {
	return []endpoint.Route{
		endpoint.ForMachines("GET /v1/machines", endpoint.Token, h.listMachines).Writes([]machinesapi.Machine{}).Asks("include_deleted", "include_leases", "summary", "region", "state"),
		endpoint.ForMachines("GET "+endpoint.AllMachines, endpoint.App, h.listMachines).Writes([]machinesapi.Machine{}).Asks("include_deleted", "include_leases", "summary", "region", "state"),
		endpoint.On("GET "+endpoint.OneMachine, endpoint.App, h.getMachine).Writes(machinesapi.Machine{}).Asks("include_leases"),
		endpoint.On("POST "+endpoint.OneMachine, endpoint.App, h.gate.Ordering(endpoint.MachineLease, h.updateMachine)).Reads(machinesapi.UpdateMachine{}).Writes(machinesapi.Machine{}),
		endpoint.On("DELETE "+endpoint.OneMachine, endpoint.App, h.destroyMachine).Writes(machinesapi.OK{}).Asks("force", "kill"),
		endpoint.On("POST "+endpoint.OneMachine+"/start", endpoint.App, h.startMachine).ReadsNothing().Writes(machinesapi.StartReply{}),
		endpoint.On("POST "+endpoint.OneMachine+"/stop", endpoint.App, h.stopMachine).MayRead(machinesapi.StopMachine{}).Writes(machinesapi.OK{}),
		endpoint.On("POST "+endpoint.OneMachine+"/suspend", endpoint.App, h.actOn(&fabric.MachineSuspend)).ReadsNothing().Writes(machinesapi.OK{}),
		endpoint.On("POST "+endpoint.OneMachine+"/restart", endpoint.App, h.restartMachine).ReadsNothing().Writes(machinesapi.OK{}).Asks("force_stop", "timeout", "signal"),
		endpoint.On("POST "+endpoint.OneMachine+"/signal", endpoint.App, h.signalMachine).Reads(machinesapi.SignalMachine{}).Writes(machinesapi.OK{}),
		endpoint.On("POST "+endpoint.OneMachine+"/cordon", endpoint.App, h.actOn(&fabric.MachineCordon)).ReadsNothing().Writes(machinesapi.OK{}),
		endpoint.On("POST "+endpoint.OneMachine+"/uncordon", endpoint.App, h.actOn(&fabric.MachineUncordon)).ReadsNothing().Writes(machinesapi.OK{}),
		endpoint.On("POST "+endpoint.OneMachine+"/exec", endpoint.App, h.execMachine).Reads(machinesapi.ExecMachine{}).Writes(machinesapi.ExecReply{}),
		endpoint.On("GET "+endpoint.OneMachine+"/wait", endpoint.App, h.waitMachine).Writes(machinesapi.WaitReply{}).Asks("state", "timeout", "instance_id", "from_event_id"),
		endpoint.On("GET "+endpoint.OneMachine+"/versions", endpoint.App, h.machineVersions).Writes([]machinesapi.Version{}),
		endpoint.On("GET "+endpoint.OneMachine+"/events", endpoint.App, h.machineEvents).Writes([]machinesapi.Event{}).Asks("limit"),
		endpoint.On("GET "+endpoint.OneMachine+"/logs", endpoint.App, h.machineLogs).Streams(machinesapi.LogLine{}).Asks("follow", "tail", "since", "after"),
		endpoint.On("GET "+endpoint.OneMachine+"/usage", endpoint.App, h.machineUsage).Writes(machinesapi.Usage{}),
		endpoint.On("GET "+endpoint.OneMachine+"/ps", endpoint.App, h.machineProcesses).Writes([]bourse.Process{}).Asks("sort_by", "order"),
		endpoint.On("POST "+endpoint.OneMachine+"/exec/stream", endpoint.App, h.execStream).Sends("application/octet-stream"),
		endpoint.On("POST "+endpoint.OneMachine+"/tunnel", endpoint.App, h.tunnel).Sends("application/octet-stream").Asks("port"),
		endpoint.On("GET "+endpoint.OneMachine+"/lease", endpoint.App, h.getLease).Writes(machinesapi.LeaseEnvelope{}),
		endpoint.On("POST "+endpoint.OneMachine+"/lease", endpoint.App, h.acquireLease).MayRead(machinesapi.LeaseRequest{}).Makes(machinesapi.LeaseEnvelope{}).Asks("ttl"),
		endpoint.On("DELETE "+endpoint.OneMachine+"/lease", endpoint.App, h.releaseLease).Writes(machinesapi.Released{}),
		endpoint.On("GET "+endpoint.OneMachine+"/metadata", endpoint.App, h.getMetadata).Writes(map[string]string{}),
		endpoint.On("PUT "+endpoint.OneMachine+"/metadata", endpoint.App, h.patchMetadata).Reads(machinesapi.MetadataPatch{}),
		endpoint.On("PATCH "+endpoint.OneMachine+"/metadata", endpoint.App, h.patchMetadata).Reads(machinesapi.MetadataPatch{}),
		endpoint.On("GET "+endpoint.OneMachine+"/metadata/{key}", endpoint.App, h.getMetadataKey).Writes(machinesapi.MetadataValue{}),
		endpoint.On("POST "+endpoint.OneMachine+"/metadata/{key}", endpoint.App, h.setMetadataKey).Reads(machinesapi.MetadataValue{}),
		endpoint.On("DELETE "+endpoint.OneMachine+"/metadata/{key}", endpoint.App, h.deleteMetadataKey),
	}
}

// target is a machine and the worker that owns it.
type target struct {
	worker bourse.Member
	id     bourse.MachineID
}

// owner determines the worker of the machine in the request's path from the machine's ID alone.
// Errors: not_found; unavailable if the worker is unreachable.
func (h *machineHandler) owner(r *endpoint.Request) (target, error) {
	id := bourse.MachineID(r.PathValue("machine"))
	tag := id.Tag()
	if tag == 0 {
		return target{}, errNoMachine()
	}
	worker, absent := byTag(h.Directory, tag)
	if worker == nil {
		return target{}, h.errLost(r, id, absent)
	}
	return target{*worker, id}, nil
}

// errLost returns the error for a machine ID whose tag matches no member. Either the worker is lost or the machine does
// not exist; only the worker could tell which. absent describes the worker, or is nil if the worker is not known to be
// absent.
func (h *machineHandler) errLost(r *endpoint.Request, id bourse.MachineID, absent *bourse.Absence) error {
	l, ok := h.machines.Copy(r.Context(), id)
	if absent != nil && (!ok || absent.Removed) {
		return errAbsent(absent)
	}
	if !ok || !r.MayUse(lookup.OwnerOf(&l.Machine)) {
		return errNoMachine()
	}
	if l.HeardAt.IsZero() {
		return bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached", l.Worker)
	}
	return bourse.Errorf(bourse.CodeUnavailable, "its worker %s cannot be reached: it was last reachable at %s",
		l.Worker, l.HeardAt.UTC().Format(time.RFC3339))
}

// machineOf fetches the machine in the request's path from its worker. A machine of another app is reported as not
// found. Errors: not_found, unavailable.
func (h *machineHandler) machineOf(r *endpoint.Request) (target, bourse.Machine, error) {
	return h.machineWithTimeout(r, h.Timeout)
}

func (h *machineHandler) machineWithTimeout(r *endpoint.Request, patience time.Duration) (target, bourse.Machine, error) {
	to, err := h.owner(r)
	if err != nil {
		return to, bourse.Machine{}, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), patience)
	defer cancel()
	m, err := fabric.MachineShow.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		return to, m, endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	h.machines.Remember(&m)
	if !r.MayUse(lookup.OwnerOf(&m)) {
		return to, m, errNoMachine()
	}
	h.machines.RememberReply(&m)
	return to, m, nil
}

// targetOf is like machineOf, but only checks that the machine belongs to the app in the path, without fetching the
// machine. A machine's app is usually cached.
func (h *machineHandler) targetOf(r *endpoint.Request) (target, error) {
	to, err := h.owner(r)
	if err != nil {
		return to, err
	}
	if of, ok := h.machines.Owner(to.id); ok {
		if !r.MayUse(of) {
			return to, errNoMachine()
		}
		return to, nil
	}
	to, _, err = h.machineOf(r)
	return to, err
}

// verbTimeout is the time limit for a call that may wait for a program to stop. It is the longest
// stop timeout plus a margin.
const verbTimeout = bourse.MaxStopTimeout + 30*time.Second
