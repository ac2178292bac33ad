package reach

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/worker/state"
)

// StateQuery describes the states that a caller waits for.
type StateQuery struct {
	States   []string          // any of these states; "settled" means any state in which a machine may stay indefinitely
	Instance bourse.InstanceID // version of the machine; "" for any
	After    bourse.EventID    // if set, wait for a state that was reached after this event; if "", the current state also counts
}

const waitSettled = "settled"

var waitable = []string{
	string(bourse.StateStarted), string(bourse.StateStopped), string(bourse.StateSuspended), string(bourse.StateDestroyed),
	string(bourse.StateFailed), waitSettled,
}

func (f *StateQuery) validate() error {
	if len(f.States) == 0 {
		f.States = []string{string(bourse.StateStarted)}
	}
	for _, s := range f.States {
		if !slices.Contains(waitable, s) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid state %s: wait for %s", bourse.Quoted(s), strings.Join(waitable, ", "))
		}
	}
	return nil
}

func (f *StateQuery) matches(s bourse.State) bool {
	return slices.Contains(f.States, string(s)) || s.Settled() && slices.Contains(f.States, waitSettled)
}

// AwaitState waits until a machine is in one of the requested states. Errors: not_found if the
// machine does not exist or is destroyed before it reaches one of these states, failed_precondition
// if the requested version was replaced, timeout after limit.
func AwaitState(ctx context.Context, s *state.State, id bourse.MachineID, want StateQuery, limit time.Duration) (fabric.WaitReply, error) {
	if err := want.validate(); err != nil {
		return fabric.WaitReply{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errWaitOver)
	defer cancel()
	var reply fabric.WaitReply
	var verdict error
	m, err := s.AwaitMachine(ctx, id, func(m *bourse.Machine) bool {
		var done bool
		reply, done, verdict = judge(m, &want)
		return done
	})
	if errors.Is(err, errWaitOver) {
		return reply, bourse.Errorf(bourse.CodeTimeout, "deadline_exceeded: machine failed to reach desired state, %s, currently %s",
			strings.Join(want.States, ","), m.State)
	}
	reply.Machine = &m
	return reply, errors.Join(err, verdict)
}

var errWaitOver = errors.New("the wait timed out")

// judge reports whether a wait is over, and returns the wait's reply or error.
func judge(m *bourse.Machine, want *StateQuery) (fabric.WaitReply, bool, error) {
	reply := fabric.WaitReply{State: m.State, Instance: m.Instance}
	if len(m.LastEvents) > 0 {
		reply.Event = m.LastEvents[0].ID
	}
	if want.Instance != "" && want.Instance != m.Instance {
		return reply, true, bourse.Errorf(bourse.CodeFailedPrecondition, "machine version %s is currently replaced", want.Instance)
	}
	if want.After == "" && want.matches(m.State) {
		return reply, true, nil
	}
	if want.After != "" {
		for _, e := range m.LastEvents { // newest first
			if e.ID == want.After {
				break
			}
			if want.matches(e.State) {
				reply.State, reply.Event = e.State, e.ID
				return reply, true, nil
			}
		}
	}
	if m.State == bourse.StateDestroyed {
		return reply, true, state.ErrNoMachine
	}
	return reply, false, nil
}
