package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/broker/endpoint"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// maxWait is the maximum duration of a wait, and also the default.
const maxWait = 60 * time.Second

// waitable returns the states that a client can wait for.
func waitable() []bourse.State {
	return []bourse.State{bourse.StateStarted, bourse.StateStopped, bourse.StateSuspended, bourse.StateDestroyed, bourse.StateFailed}
}

// waitMachine blocks until the machine is in a requested state or the time limit expires. It never returns early,
// because clients would immediately retry.
func (h *machineHandler) waitMachine(w http.ResponseWriter, r *endpoint.Request) error {
	want, err := readWait(r)
	if err != nil {
		return err
	}
	to, err := h.targetOf(r)
	if err != nil {
		return err
	}
	want.Machine = to.id
	ctx, cancel := context.WithTimeout(r.Context(), time.Duration(want.Timeout)+replyMargin)
	defer cancel()
	got, err := fabric.MachineWait.Call(ctx, h.Workers, to.worker, want)
	if err == nil && got.Machine != nil {
		h.machines.RememberReply(got.Machine)
	}
	switch code := bourse.CodeOf(err); {
	case err == nil && got.State == bourse.StateDestroyed && !slices.Contains(want.States, bourse.StateDestroyed):
		return errNoMachine() // the machine can no longer reach a requested state
	case err == nil:
		return endpoint.WriteJSON(w, http.StatusOK, machinesapi.WaitReply{OK: true, State: got.State, Version: got.Instance, EventID: got.Event})
	case code == bourse.CodeTimeout && r.Context().Err() == nil:
		return h.waitTimedOut(r, to, want.States[0], err)
	case want.Instance != "" && (code == bourse.CodeConflict || code == bourse.CodeFailedPrecondition):
		return bourse.Errorf(code, "machine failed to reach desired state, %s, currently replaced", want.States[0])
	}
	return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
}

// waitTimedOut returns a timeout error in the form that clients expect. It contains the machine's
// current state.
func (h *machineHandler) waitTimedOut(r *endpoint.Request, to target, wanted bourse.State, cause error) error {
	ctx, cancel := context.WithTimeout(r.Context(), h.Timeout)
	defer cancel()
	m, err := fabric.MachineShow.Call(ctx, h.Workers, to.worker, to.id)
	if err != nil {
		// The worker does not answer or has no such machine, so the error cannot contain the machine's state.
		return endpoint.WorkerError(r.Context(), to.worker.ID, endpoint.Reading, err)
	}
	h.machines.RememberReply(&m)
	return &bourse.Error{
		Code: bourse.CodeTimeout, Err: cause,
		Message: "machine failed to reach desired state, " + string(wanted) + ", currently " + string(m.State),
	}
}

// readWait decodes the parameters of a wait. Errors: invalid.
func readWait(r *endpoint.Request) (fabric.WaitQuery, error) {
	query := r.URL.Query()
	want := fabric.WaitQuery{
		Instance: bourse.InstanceID(cmp.Or(query.Get("version"), query.Get("instance_id"))),
		After:    bourse.EventID(query.Get("from_event_id")),
	}
	timeout, err := endpoint.QueryTimeout(r, maxWait)
	if err != nil {
		return want, err
	}
	want.Timeout = bourse.Duration(cmp.Or(timeout, maxWait))
	for _, list := range query["state"] {
		for word := range strings.SplitSeq(list, ",") {
			states, err := waitStates(strings.TrimSpace(word))
			if err != nil {
				return want, err
			}
			want.States = append(want.States, states...)
		}
	}
	if len(want.States) == 0 {
		want.States = []bourse.State{bourse.StateStarted}
	}
	return want, nil
}

// waitStates returns the states denoted by a value of the state parameter.
func waitStates(word string) ([]bourse.State, error) {
	switch {
	case word == "":
		return nil, nil
	case word == machinesapi.StateSettled:
		return slices.DeleteFunc(bourse.States(), func(s bourse.State) bool { return !s.Settled() }), nil
	case slices.Contains(waitable(), bourse.State(word)):
		return []bourse.State{bourse.State(word)}, nil
	}
	return nil, bourse.Errorf(bourse.CodeInvalid, "invalid state %s: use started, stopped, suspended, destroyed, failed or settled", bourse.Quoted(word))
}
