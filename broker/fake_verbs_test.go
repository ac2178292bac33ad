package broker_test

import (
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// act implements a verb of machines: it checks the lease and the state, and calls do to change the
// machine.
func (w *worker) act(v *fabric.Verb[fabric.MachineAction, fabric.ActReply], do func(*bourse.Machine, fabric.MachineAction) error) {
	handle(w, v, func(act fabric.MachineAction) (fabric.ActReply, error) {
		asked := act
		asked.Machine = ""
		w.acts = append(w.acts, asked)
		m, err := w.find(act.Machine)
		if err != nil {
			return fabric.ActReply{}, err
		}
		if m.State == bourse.StateDestroyed {
			return fabric.ActReply{}, bourse.Errorf(bourse.CodeNotFound, "destroyed")
		}
		if v != &fabric.MachineSignal && !m.Lease.Expired(time.Now()) && m.Lease.Nonce != act.Nonce {
			return fabric.ActReply{}, bourse.Errorf(bourse.CodeConflict, "machine ID %s lease currently held by %s, expires at %s", m.ID, m.Lease.Owner, m.Lease.ExpiresAt.Format(time.RFC3339))
		}
		before := m.State
		if err := do(m, act); err != nil {
			return fabric.ActReply{}, err
		}
		return fabric.ActReply{Previous: before, Machine: *m}, nil
	})
}

func (w *worker) handleActs() {
	w.act(&fabric.MachineStart, func(m *bourse.Machine, _ fabric.MachineAction) error {
		switch {
		case m.State == bourse.StateCreated:
			return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to start machine from current state: '%s'", m.State)
		case w.full:
			return bourse.Errorf(bourse.CodeInsufficient, "insufficient memory available to fulfill request on the current host")
		case m.State != bourse.StateStarted:
			w.enter(m, bourse.EventStart, bourse.StateStarted, bourse.SourceWorker)
		}
		return nil
	})
	w.act(&fabric.MachineStop, func(m *bourse.Machine, _ fabric.MachineAction) error {
		if m.State == bourse.StateStarted {
			w.enter(m, bourse.EventStop, bourse.StateStopping, bourse.SourceUser)
			w.enter(m, bourse.EventExit, bourse.StateStopped, bourse.SourceWorker)
		}
		return nil
	})
	w.act(&fabric.MachineSuspend, func(m *bourse.Machine, _ fabric.MachineAction) error {
		if m.State == bourse.StateStarted {
			w.enter(m, bourse.EventSuspend, bourse.StateSuspending, bourse.SourceUser)
			w.enter(m, bourse.EventSuspend, bourse.StateSuspended, bourse.SourceWorker)
		}
		return nil
	})
	w.act(&fabric.MachineRestart, func(m *bourse.Machine, _ fabric.MachineAction) error {
		w.enter(m, bourse.EventRestart, bourse.StateStarted, bourse.SourceUser)
		return nil
	})
	w.act(&fabric.MachineDestroy, func(m *bourse.Machine, act fabric.MachineAction) error {
		if m.State == bourse.StateStarted && !act.Force {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to destroy machine, not currently stopped")
		}
		w.enter(m, bourse.EventDestroy, bourse.StateDestroyed, bourse.SourceUser)
		m.Lease = nil
		return nil
	})
	w.act(&fabric.MachineCordon, func(m *bourse.Machine, _ fabric.MachineAction) error { m.Cordoned = true; w.touch(m); return nil })
	w.act(&fabric.MachineUncordon, func(m *bourse.Machine, _ fabric.MachineAction) error { m.Cordoned = false; w.touch(m); return nil })
	w.act(&fabric.MachineSignal, func(m *bourse.Machine, _ fabric.MachineAction) error {
		if m.State != bourse.StateStarted {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "machine is %s", m.State)
		}
		return nil
	})
	w.act(&fabric.MachineRelease, func(m *bourse.Machine, _ fabric.MachineAction) error {
		if m.Lease.Expired(time.Now()) {
			return bourse.Errorf(bourse.CodeNotFound, "no lease")
		}
		m.Lease = nil
		w.touch(m)
		return nil
	})
	handle(w, &fabric.MachineUpdate, w.update)
	handle(w, &fabric.MachineVersions, func(id bourse.MachineID) ([]bourse.Version, error) {
		m, err := w.find(id)
		if err != nil {
			return nil, err
		}
		return []bourse.Version{{Instance: m.Instance, Config: m.Config}}, nil
	})
	handle(w, &fabric.MachineExec, func(exec fabric.ExecRequest) (fabric.ExecReply, error) {
		id := exec.Machine
		exec.Machine = ""
		w.execs = append(w.execs, exec)
		if _, err := w.find(id); err != nil {
			return fabric.ExecReply{}, err
		}
		if exec.Command[0] == "missing" {
			return fabric.ExecReply{}, bourse.Errorf(bourse.CodeInvalid, "no such command")
		}
		line, err := json.Marshal(exec.Command)
		return fabric.ExecReply{Exit: bourse.Exit{Code: 3}, Stdout: line, Stderr: exec.Stdin}, err
	})
}

// update creates a new version of a machine, which starts immediately.
func (w *worker) update(req fabric.UpdateRequest) (fabric.ActReply, error) {
	m, err := w.find(req.Machine)
	if err != nil {
		return fabric.ActReply{}, err
	}
	w.updates = append(w.updates, req)
	switch {
	case req.Current != "" && req.Current != m.Instance:
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeConflict, "machine %s has version %s", m.ID, m.Instance)
	case w.full:
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeInsufficient, "insufficient memory available to fulfill request on the current host")
	}
	before := m.State
	w.enter(m, bourse.EventUpdate, bourse.StateReplacing, bourse.SourceUser)
	m.Instance, m.Config = bourse.NewInstanceID(), req.Config
	if req.LeaseTTL > 0 {
		m.Lease = &bourse.Lease{Nonce: "aabbcc", Owner: req.LeaseOwner, ExpiresAt: time.Now().Add(time.Minute)}
	}
	w.enter(m, bourse.EventStart, bourse.StateStarted, bourse.SourceWorker)
	return fabric.ActReply{Previous: before, Machine: *m}, nil
}
