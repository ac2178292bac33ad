package machines

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/store"

	"github.com/bourse-dev/bourse/worker/state"
)

// List lists the machines of an app, or all for nil.
func (ms *Machines) List(ctx context.Context, app *bourse.App, keep func(*bourse.Machine) bool) ([]bourse.Machine, error) {
	if err := ms.state.Store.Sync(ctx); err != nil {
		return nil, err
	}
	out := []bourse.Machine{}
	err := ms.state.Store.View(func(tx *store.Tx) error {
		all := tx.Machines()
		if app != nil {
			all = tx.MachinesOf(*app)
		}
		for m, err := range all {
			if err != nil {
				return err
			}
			if !keep(&m) {
				continue
			}
			if m.LastEvents, err = state.ReadEvents(tx, m.ID, state.RecentEvents); err != nil {
				return err
			}
			out = append(out, m)
		}
		return nil
	})
	slices.SortFunc(out, func(a, b bourse.Machine) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return out, err
}

// Logs calls fn with what a machine's program has written.
func (ms *Machines) Logs(ctx context.Context, m *bourse.Machine, query driver.LogQuery, fn func(driver.LogLine) error) error {
	d, err := ms.DriverOf(m)
	if err != nil {
		return err
	}
	return d.Logs(ctx, m.ID, query, fn)
}

// DriverOf returns the driver that runs a machine.
func (ms *Machines) DriverOf(m *bourse.Machine) (driver.Driver, error) {
	return ms.ops.drivers.of(m.Config.ImageKind())
}

// Running reads a machine whose program must run: to signal it, to run another
// beside it, to see what it uses.
func (ms *Machines) Running(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	m, err := ms.state.Machine(ctx, id)
	if err == nil {
		err = on(&m, bourse.CallExec)
	}
	return m, err
}

// Signal sends a signal to a machine's program.
func (ms *Machines) Signal(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	if act.Signal == "" {
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeInvalid, "signal is required")
	}
	m, err := ms.Running(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	d, err := ms.DriverOf(&m)
	if err != nil {
		return fabric.ActReply{}, err
	}
	return fabric.ActReply{Previous: m.State, Machine: m}, d.Signal(ctx, TaskOf(&m), act.Signal)
}

// Bounds of an exec.
const (
	execDefault = time.Minute
	execMost    = 10 * time.Minute
)

// Exec runs a command beside a machine's program. Past its timeout it is
// killed, which is an answer too: CodeTimeout.
func (ms *Machines) Exec(ctx context.Context, id bourse.MachineID, req *fabric.ExecRequest) (fabric.ExecReply, error) {
	limit := time.Duration(req.Timeout)
	if limit == 0 {
		limit = execDefault
	}
	if limit < 0 || limit > execMost || len(req.Command) == 0 {
		return fabric.ExecReply{}, bourse.Errorf(bourse.CodeInvalid, "invalid exec: give a command, and a timeout of up to %s", execMost)
	}
	m, err := ms.Running(ctx, id)
	if err != nil {
		return fabric.ExecReply{}, err
	}
	d, err := ms.DriverOf(&m)
	if err != nil {
		return fabric.ExecReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := d.Exec(ctx, TaskOf(&m), driver.Exec{Command: req.Command, Stdin: bytes.NewReader(req.Stdin)})
	if ctx.Err() == context.DeadlineExceeded {
		return fabric.ExecReply{}, bourse.Errorf(bourse.CodeTimeout, "the command did not end within %s and was killed", limit)
	}
	return fabric.ExecReply{Exit: res.Exit, Stdout: res.Stdout, Stderr: res.Stderr}, err
}
