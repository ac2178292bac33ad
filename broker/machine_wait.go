package broker

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/machinesapi"
)

// MachineWaiter follows a machine where it is.
type MachineWaiter interface {
	// Wait blocks until the machine is in one of the wanted states,
	// CodeTimeout when time runs out.
	Wait(ctx context.Context, to bourse.Member, id bourse.MachineID, query fabric.WaitQuery) (fabric.WaitReply, error)
	// Logs gives the machine's log lines that the query selects, oldest first.
	Logs(ctx context.Context, to bourse.Member, id bourse.MachineID, query fabric.LogsQuery, line func(fabric.LogLine) error) error
}

// maxWait is how long one request waits, at most and by default.
const maxWait = 60 * time.Second

// waitable are the states that can be waited for; no machine is suspended yet.
func waitable() []bourse.State {
	return []bourse.State{bourse.StateStarted, bourse.StateStopped, "suspended", bourse.StateDestroyed, bourse.StateFailed}
}

// waitMachine holds the request open until the machine is where the caller
// wants it, or time is up: a client that is answered early asks again at once.
func (b *Broker) waitMachine(w http.ResponseWriter, r *request) error {
	want, err := readWait(r)
	if err != nil {
		return err
	}
	to, err := b.targetOf(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.Context(), want.Timeout+answerSlack)
	defer cancel()
	got, err := b.Workers.Wait(ctx, to.worker, to.id, want)
	if err == nil && got.Machine != nil {
		b.fresh.note(got.Machine)
	}
	switch code := bourse.CodeOf(err); {
	case err == nil && got.State == bourse.StateDestroyed && !slices.Contains(want.States, bourse.StateDestroyed):
		return errNoMachine() // it will never get where the caller wants it
	case err == nil:
		return writeJSON(w, http.StatusOK, machinesapi.WaitReply{OK: true, State: got.State, Version: got.Instance, EventID: got.Event})
	case code == bourse.CodeTimeout && r.Context().Err() == nil:
		return b.notYet(r, to, want.States[0], err)
	case want.Instance != "" && (code == bourse.CodeConflict || code == bourse.CodeFailedPrecondition):
		return bourse.Errorf(code, "machine failed to reach desired state, %s, currently replaced", want.States[0])
	}
	return workerError(r.Context(), to.worker.ID, reading, err)
}

// notYet says that time was up, in the text that clients look for, with the
// state that the machine is in instead.
func (b *Broker) notYet(r *request, to target, wanted bourse.State, cause error) error {
	ctx, cancel := context.WithTimeout(r.Context(), b.Patience)
	defer cancel()
	m, err := b.Workers.Machine(ctx, to.worker, to.id)
	if err != nil {
		return workerError(r.Context(), to.worker.ID, reading, err) // it was the worker's silence, not the machine's
	}
	b.fresh.note(&m)
	return &bourse.Error{
		Code: bourse.CodeTimeout, Err: cause,
		Message: "machine failed to reach desired state, " + string(wanted) + ", currently " + string(m.State),
	}
}

// readWait reads what a wait is for. Codes: invalid.
func readWait(r *request) (fabric.WaitQuery, error) {
	query := r.URL.Query()
	want := fabric.WaitQuery{
		Instance: bourse.InstanceID(cmp.Or(query.Get("version"), query.Get("instance_id"))),
		After:    bourse.EventID(query.Get("from_event_id")),
	}
	var err error
	if want.Timeout, err = queryTimeout(r, maxWait); err != nil {
		return want, err
	}
	want.Timeout = cmp.Or(want.Timeout, maxWait)
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

// waitStates gives the states that a word of the state parameter stands for.
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
