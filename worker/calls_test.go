package worker

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"
)

// TestCallsInEveryState makes every call on a machine in every state, and checks that
// the worker answers according to the table of calls.
func TestCallsInEveryState(t *testing.T) {
	for _, state := range bourse.States() {
		t.Run(string(state), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHost(t, nil)
				defer h.crash()
				for i, call := range bourse.Calls() {
					m := h.place(run("run"))
					switch state {
					case bourse.StateStarted:
					case bourse.StateSuspended:
						h.must(h.machines.Suspend(t.Context(), m.ID, fabric.MachineAction{}))
					default:
						m = h.forced(&m, i, state)
					}
					h.answers(call, m.ID, state)
				}
			})
		})
	}
}

// answers makes a call on a machine in a state, and checks its result.
func (h *host) answers(call bourse.Call, id bourse.MachineID, state bourse.State) {
	ctx, cancel := context.WithTimeout(h.t.Context(), time.Second) // allowed calls may block, because the machine has no program
	defer cancel()
	err := h.call(ctx, call, id)
	code := bourse.CodeOf(err)
	answer, text := call.On(state)
	switch answer {
	case bourse.CallAllowed:
		if code == bourse.CodeNotFound || code == bourse.CodeFailedPrecondition {
			h.t.Errorf("%s is allowed, got error %v", call, err)
		}
	case bourse.CallNoChange:
		if now := h.get(id).State; err != nil || now != state {
			h.t.Errorf("%s: already in the requested state, got %v, then %s", call, err, now)
		}
	case bourse.CallNotFound:
		if code != bourse.CodeNotFound {
			h.t.Errorf("%s: the machine is gone, got %v", call, err)
		}
	case bourse.CallRefused:
		if now := h.get(id).State; code != bourse.CodeFailedPrecondition || bourse.MessageOf(err) != text || now != state {
			h.t.Errorf("%s: got %v, then %s; want %q", call, err, now, text)
		}
	}
}

func (h *host) call(ctx context.Context, call bourse.Call, id bourse.MachineID) error {
	var err error
	switch call {
	case bourse.CallStart:
		_, err = h.machines.Start(ctx, id, fabric.MachineAction{})
	case bourse.CallStop:
		_, err = h.machines.Stop(ctx, id, fabric.MachineAction{})
	case bourse.CallSuspend:
		_, err = h.machines.Suspend(ctx, id, fabric.MachineAction{})
	case bourse.CallUsage:
		_, err = h.machines.Usage(ctx, id)
	case bourse.CallRestart:
		_, err = h.machines.Restart(ctx, id, fabric.MachineAction{})
	case bourse.CallUpdate:
		m := h.get(id)
		_, err = h.machines.Update(ctx, fabric.UpdateRequest{Machine: id, Config: m.Config})
	case bourse.CallDestroy:
		_, err = h.machines.Destroy(ctx, id, fabric.MachineAction{})
	case bourse.CallSignal:
		_, err = h.machines.Signal(ctx, id, fabric.MachineAction{Signal: "SIGCONT"})
	case bourse.CallExec:
		_, err = h.machines.Exec(ctx, id, &fabric.ExecRequest{Command: []string{"print", "x"}})
	case bourse.CallLease:
		_, err = h.machines.Lease(ctx, id, fabric.LeaseRequest{})
	case bourse.CallCordon:
		_, err = h.machines.Cordon(ctx, id, fabric.MachineAction{}, true)
	case bourse.CallMetadata:
		_, err = h.machines.SetMetadata(ctx, id, fabric.MetadataRequest{})
	default:
		h.t.Fatalf("unknown call: %s", call)
	}
	return err
}

// forced records a copy of m that never ran, and brings its record to a state.
func (h *host) forced(m *bourse.Machine, n int, state bourse.State) bourse.Machine {
	h.t.Helper()
	out := *m
	out.ID = bourse.NewMachineID(m.ID.Tag())
	out.Name, out.Order, out.Boot, out.Takes = "forced-"+strconv.Itoa(n), bourse.NewOrderID(), bourse.Boot{}, nil
	err := h.state.Commit(h.t.Context(), out.ID, func(tx *store.Tx) error {
		for _, s := range pathTo(state) {
			out.State = s
			if err := tx.PutMachine(&out); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return out
}

// pathTo returns the states that a new machine passes through to reach a state.
func pathTo(state bourse.State) []bourse.State {
	ways := [][]bourse.State{{bourse.StateCreated}}
	for i := 0; i < len(ways); i++ {
		way := ways[i]
		last := way[len(way)-1]
		if last == state {
			return way
		}
		for _, next := range bourse.States() {
			if last.CanBecome(next) && !slices.Contains(way, next) {
				ways = append(ways, append(slices.Clone(way), next))
			}
		}
	}
	return nil
}
