package broker

import (
	"context"
	"net/http"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// verb is an operation that a worker performs on one of its machines. The worker checks the
// machine's lease and state, and its errors are returned to the caller unchanged.
type verb = fabric.Verb[fabric.MachineAction, fabric.ActReply]

// act calls a verb on the machine's worker, with the lease nonce that the caller sent.
func (h *machineHandler) act(r *endpoint.Request, do *verb, act fabric.MachineAction) (fabric.ActReply, error) {
	to, err := h.targetOf(r)
	if err != nil {
		return fabric.ActReply{}, err
	}
	act.Machine, act.Nonce, act.By = to.id, r.Header.Get(machinesapi.HeaderNonce), r.Who.Name
	ctx, cancel := context.WithTimeout(r.Context(), verbTimeout)
	defer cancel()
	done, err := do.Call(ctx, h.Workers, to.worker, act)
	if err == nil {
		h.machines.RememberReply(&done.Machine)
	}
	return done, endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Changing, err)
}

// actOK is like act, but also writes the reply {"ok":true}.
func (h *machineHandler) actOK(w http.ResponseWriter, r *endpoint.Request, do *verb, act fabric.MachineAction) error {
	if _, err := h.act(r, do, act); err != nil {
		return err
	}
	return endpoint.WriteOK(w)
}

func (h *machineHandler) startMachine(w http.ResponseWriter, r *endpoint.Request) error {
	secrets, keys, err := h.latestSecrets(r)
	if err != nil {
		return err
	}
	done, err := h.act(r, &fabric.MachineStart, fabric.MachineAction{Secrets: secrets, AppKeys: keys})
	if err != nil {
		return err
	}
	return endpoint.WriteJSON(w, http.StatusOK, machinesapi.StartReply{PreviousState: done.Previous})
}

// latestSecrets returns the latest version of the app's secrets, and the keys that decrypt them. A machine that starts
// must receive all secrets that were set before the start.
func (h *machineHandler) latestSecrets(r *endpoint.Request) (uint64, bourse.AppKeys, error) {
	app, err := h.apps.FindCached(r.Context(), r.App())
	if err != nil {
		return 0, nil, err
	}
	return h.secrets.Require(r.Context(), app.ID, 0)
}

// stopMachine replies immediately. The machine stops in the background.
func (h *machineHandler) stopMachine(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.StopMachine
	if err := endpoint.Decode(w, r, true, &in); err != nil {
		return err
	}
	if err := checkStopTimeout(in.Timeout); err != nil {
		return err
	}
	return h.actOK(w, r, &fabric.MachineStop, fabric.MachineAction{Signal: in.Signal, Timeout: in.Timeout})
}

func (h *machineHandler) restartMachine(w http.ResponseWriter, r *endpoint.Request) error {
	force, err := endpoint.QueryBool(r, "force_stop")
	if err != nil {
		return err
	}
	timeout, err := endpoint.QueryTimeout(r, bourse.MaxStopTimeout)
	if err != nil {
		return err
	}
	secrets, keys, err := h.latestSecrets(r)
	if err != nil {
		return err
	}
	act := fabric.MachineAction{Force: force, Timeout: bourse.Duration(timeout), Secrets: secrets, AppKeys: keys}
	if s := r.URL.Query().Get("signal"); s != "" {
		if act.Signal, err = bourse.ParseSignal(s); err != nil {
			return err
		}
	}
	return h.actOK(w, r, &fabric.MachineRestart, act)
}

func (h *machineHandler) signalMachine(w http.ResponseWriter, r *endpoint.Request) error {
	var in machinesapi.SignalMachine
	if err := endpoint.Decode(w, r, false, &in); err != nil {
		return err
	}
	if in.Signal == "" {
		return bourse.Errorf(bourse.CodeInvalid, "signal is required")
	}
	return h.actOK(w, r, &fabric.MachineSignal, fabric.MachineAction{Signal: in.Signal})
}

// actOn returns a handler that calls a verb without parameters.
func (h *machineHandler) actOn(do *verb) endpoint.Handler {
	return func(w http.ResponseWriter, r *endpoint.Request) error {
		return h.actOK(w, r, do, fabric.MachineAction{})
	}
}

// destroyMachine replies once the machine is destroyed. The query parameter that forces the destruction is called force
// in the API's documentation and kill in fly-go.
func (h *machineHandler) destroyMachine(w http.ResponseWriter, r *endpoint.Request) error {
	force, err := endpoint.QueryBool(r, "force")
	if err != nil {
		return err
	}
	kill, err := endpoint.QueryBool(r, "kill")
	if err != nil {
		return err
	}
	id := bourse.MachineID(r.PathValue("machine"))
	_, absent := byTag(h.Directory, id.Tag())
	if absent == nil {
		return h.actOK(w, r, &fabric.MachineDestroy, fabric.MachineAction{Force: force || kill})
	}
	if absent.Removed && (force || kill) {
		return endpoint.WriteOK(w) // the machine was removed together with its worker
	}
	err = h.errLost(r, id, absent)
	if bourse.CodeOf(err) == bourse.CodeUnavailable {
		err = bourse.Errorf(bourse.CodeUnavailable, "the machine cannot be destroyed now: %s; it is removed when an operator removes that worker", bourse.MessageOf(err))
	}
	return err
}

func checkStopTimeout(d bourse.Duration) error {
	if d < 0 || d > bourse.Duration(bourse.MaxStopTimeout) {
		return bourse.Errorf(bourse.CodeInvalid, "invalid timeout: use 0 to %s", bourse.MaxStopTimeout)
	}
	return nil
}
