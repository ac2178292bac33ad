package broker_test

import (
	"context"
	"encoding/json"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/fabric"
)

// act makes a verb: it looks after the lease and the state, then lets do
// change the machine.
func (c *cluster) act(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act, name string, do func(*worker, *bourse.Machine) error) (fabric.ActReply, error) {
	return on(ctx, c, to, name, func(w *worker) (fabric.ActReply, error) {
		w.acts = append(w.acts, act)
		m, err := w.find(id)
		if err != nil {
			return fabric.ActReply{}, err
		}
		if m.State == bourse.StateDestroyed {
			return fabric.ActReply{}, bourse.Errorf(bourse.CodeNotFound, "destroyed")
		}
		if name != "signal" && !m.Lease.Expired(time.Now()) && m.Lease.Nonce != act.Nonce {
			return fabric.ActReply{}, bourse.Errorf(bourse.CodeConflict, "machine ID %s lease currently held by %s, expires at %s", id, m.Lease.Owner, m.Lease.ExpiresAt.Format(time.RFC3339))
		}
		before := m.State
		if err := do(w, m); err != nil {
			return fabric.ActReply{}, err
		}
		return fabric.ActReply{Previous: before, Machine: *m}, nil
	})
}

func (c *cluster) Start(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "start", func(w *worker, m *bourse.Machine) error {
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
}

func (c *cluster) Stop(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "stop", func(w *worker, m *bourse.Machine) error {
		if m.State == bourse.StateStarted {
			w.enter(m, bourse.EventStop, bourse.StateStopping, bourse.SourceUser)
			w.enter(m, bourse.EventExit, bourse.StateStopped, bourse.SourceWorker)
		}
		return nil
	})
}

func (c *cluster) Restart(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "restart", func(w *worker, m *bourse.Machine) error {
		w.enter(m, bourse.EventRestart, bourse.StateStarted, bourse.SourceUser)
		return nil
	})
}

func (c *cluster) Destroy(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "destroy", func(w *worker, m *bourse.Machine) error {
		if m.State == bourse.StateStarted && !act.Force {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "unable to destroy machine, not currently stopped")
		}
		w.enter(m, bourse.EventDestroy, bourse.StateDestroyed, bourse.SourceUser)
		m.Lease = nil
		return nil
	})
}

func (c *cluster) Cordon(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "cordon", func(w *worker, m *bourse.Machine) error { m.Cordoned = true; w.touch(m); return nil })
}

func (c *cluster) Uncordon(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "uncordon", func(w *worker, m *bourse.Machine) error { m.Cordoned = false; w.touch(m); return nil })
}

func (c *cluster) Signal(ctx context.Context, to bourse.Member, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	return c.act(ctx, to, id, act, "signal", func(_ *worker, m *bourse.Machine) error {
		if m.State != bourse.StateStarted {
			return bourse.Errorf(bourse.CodeFailedPrecondition, "machine is %s", m.State)
		}
		return nil
	})
}

func (c *cluster) Exec(ctx context.Context, to bourse.Member, id bourse.MachineID, exec fabric.ExecRequest) (fabric.ExecReply, error) {
	return on(ctx, c, to, "exec", func(w *worker) (fabric.ExecReply, error) {
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
