package worker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// waitFor says what a caller waits for.
type waitFor struct {
	states   []string          // any of them; "settled" stands for every state a machine stays in
	instance bourse.InstanceID // of this version; "" for any
	after    bourse.EventID    // only states reached after this event; "" for the present one too
}

const waitSettled = "settled"

var waitable = []string{
	string(bourse.StateStarted), string(bourse.StateStopped), "suspended", string(bourse.StateDestroyed),
	string(bourse.StateFailed), waitSettled,
}

func (f *waitFor) validate() error {
	if len(f.states) == 0 {
		f.states = []string{string(bourse.StateStarted)}
	}
	for _, s := range f.states {
		if !slices.Contains(waitable, s) {
			return bourse.Errorf(bourse.CodeInvalid, "invalid state %s: wait for %s", bourse.Quoted(s), strings.Join(waitable, ", "))
		}
	}
	return nil
}

func (f *waitFor) matches(s bourse.State) bool {
	return slices.Contains(f.states, string(s)) || s.Settled() && slices.Contains(f.states, waitSettled)
}

// wait blocks until a machine is in one of the wanted states. Errors:
// not_found when it is gone, failed_precondition when the version was
// replaced, timeout after limit.
func (w *Worker) wait(ctx context.Context, id bourse.MachineID, want waitFor, limit time.Duration) (fabric.WaitReply, error) {
	if err := want.validate(); err != nil {
		return fabric.WaitReply{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errWaited)
	defer cancel()
	var reply fabric.WaitReply
	var verdict error
	m, err := w.await(ctx, id, func(m *bourse.Machine) bool {
		var done bool
		reply, done, verdict = judge(m, &want)
		return done
	})
	if errors.Is(err, errWaited) {
		return reply, bourse.Errorf(bourse.CodeTimeout, "deadline_exceeded: machine failed to reach desired state, %s, currently %s",
			strings.Join(want.states, ","), m.State)
	}
	reply.Machine = &m
	return reply, errors.Join(err, verdict)
}

var errWaited = errors.New("waited long enough")

// judge tells whether a wait is over, and how.
func judge(m *bourse.Machine, want *waitFor) (fabric.WaitReply, bool, error) {
	reply := fabric.WaitReply{State: m.State, Instance: m.Instance}
	if len(m.LastEvents) > 0 {
		reply.Event = m.LastEvents[0].ID
	}
	if want.instance != "" && want.instance != m.Instance {
		return reply, true, bourse.Errorf(bourse.CodeFailedPrecondition, "machine version %s is currently replaced", want.instance)
	}
	if want.after == "" && want.matches(m.State) {
		return reply, true, nil
	}
	if want.after != "" {
		for _, e := range m.LastEvents { // newest first
			if e.ID == want.after {
				break
			}
			if want.matches(e.State) {
				reply.State, reply.Event = e.State, e.ID
				return reply, true, nil
			}
		}
	}
	if m.State == bourse.StateDestroyed {
		return reply, true, errNoMachine
	}
	return reply, false, nil
}
