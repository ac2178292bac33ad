package worker

import (
	"bytes"
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/fsm"
	"github.com/bourse-dev/bourse/store"
)

type verb func(context.Context, bourse.MachineID, fabric.Act) (fabric.ActReply, error)

func (w *Worker) handleVerbs(mux *http.ServeMux) {
	verbs := map[string]verb{
		fabric.PathStart:   w.start,
		fabric.PathStop:    w.stop,
		fabric.PathRestart: w.restart,
		fabric.PathDestroy: w.destroy,
		fabric.PathSignal:  w.signal,
		fabric.PathRelease: w.release,
		fabric.PathCordon: func(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
			return w.cordon(ctx, id, act, true)
		},
		fabric.PathUncordon: func(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
			return w.cordon(ctx, id, act, false)
		},
	}
	for path, do := range verbs {
		mux.HandleFunc(path, take(func(r *http.Request, act *fabric.Act) (fabric.ActReply, error) {
			if err := act.Signal.Validate(); act.Signal != "" && err != nil {
				return fabric.ActReply{}, err
			}
			if act.Timeout < 0 || time.Duration(act.Timeout) > bourse.MaxStopTimeout {
				return fabric.ActReply{}, bourse.Errorf(bourse.CodeInvalid, "invalid timeout %s: use 0 to %s", time.Duration(act.Timeout), bourse.MaxStopTimeout)
			}
			return do(r.Context(), machineID(r), *act)
		}))
	}
	mux.HandleFunc(fabric.PathExec, take(func(r *http.Request, req *fabric.ExecRequest) (fabric.ExecReply, error) {
		return w.exec(r.Context(), machineID(r), req)
	}))
	mux.HandleFunc(fabric.PathLease, take(func(r *http.Request, req *fabric.LeaseRequest) (bourse.Lease, error) {
		return w.lease(r.Context(), machineID(r), *req)
	}))
	mux.HandleFunc(fabric.PathMetadata, take(func(r *http.Request, req *fabric.MetadataRequest) (bourse.Machine, error) {
		return w.metadata(r.Context(), machineID(r), *req)
	}))
}

// running reads a machine that must be started.
func (w *Worker) running(ctx context.Context, id bourse.MachineID) (bourse.Machine, error) {
	m, err := w.machine(ctx, id)
	if err == nil && m.State != bourse.StateStarted {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s is %s, not started", id, m.State)
	}
	return m, err
}

// signal sends a signal to a machine's program.
func (w *Worker) signal(ctx context.Context, id bourse.MachineID, act fabric.Act) (fabric.ActReply, error) {
	if act.Signal == "" {
		return fabric.ActReply{}, bourse.Errorf(bourse.CodeInvalid, "signal is required")
	}
	m, err := w.running(ctx, id)
	if err != nil {
		return fabric.ActReply{}, err
	}
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		return fabric.ActReply{}, err
	}
	return fabric.ActReply{Previous: m.State, Machine: m}, d.Signal(ctx, taskOf(&m), act.Signal)
}

// Bounds of an exec.
const (
	execDefault = time.Minute
	execMost    = 10 * time.Minute
)

// exec runs a command beside a machine's program. Past its timeout it is
// killed, which is an answer too: CodeTimeout.
func (w *Worker) exec(ctx context.Context, id bourse.MachineID, req *fabric.ExecRequest) (fabric.ExecReply, error) {
	limit := time.Duration(req.Timeout)
	if limit == 0 {
		limit = execDefault
	}
	if limit < 0 || limit > execMost || len(req.Command) == 0 {
		return fabric.ExecReply{}, bourse.Errorf(bourse.CodeInvalid, "invalid exec: give a command, and a timeout of up to %s", execMost)
	}
	m, err := w.running(ctx, id)
	if err != nil {
		return fabric.ExecReply{}, err
	}
	d, err := w.driverOf(m.Config.Image)
	if err != nil {
		return fabric.ExecReply{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	res, err := d.Exec(ctx, taskOf(&m), driver.Exec{Command: req.Command, Stdin: bytes.NewReader(req.Stdin)})
	if ctx.Err() == context.DeadlineExceeded {
		return fabric.ExecReply{}, bourse.Errorf(bourse.CodeTimeout, "the command did not end within %s and was killed", limit)
	}
	return fabric.ExecReply{Exit: res.Exit, Stdout: res.Stdout, Stderr: res.Stderr}, err
}

func (w *Worker) handleRuns(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathRuns, reply(func(r *http.Request) ([]fabric.Run, error) {
		return w.listRuns(r.URL.Query().Get("ended") == "true")
	}))
	for path, do := range map[string]func(context.Context, string) error{
		fabric.PathRunRetry: w.engine.Retry,
		fabric.PathRunSkip:  w.engine.Skip,
		fabric.PathRunCancel: func(ctx context.Context, run string) error {
			return w.engine.Cancel(ctx, run, "canceled by an operator")
		},
	} {
		mux.HandleFunc(path, reply(func(r *http.Request) (fabric.Run, error) {
			if err := do(r.Context(), r.PathValue("run")); err != nil {
				return fabric.Run{}, err
			}
			rec, ok, err := w.store.Journal().Run(r.PathValue("run"))
			if err == nil && !ok {
				err = bourse.Errorf(bourse.CodeNotFound, "run not found")
			}
			return showRun(rec), err
		}))
	}
}

// listRuns gives the runs that are under way, and those that ended lately if
// asked for.
func (w *Worker) listRuns(ended bool) ([]fabric.Run, error) {
	runs := []fabric.Run{}
	err := w.store.View(func(tx *store.Tx) error {
		for r, err := range tx.Runs() {
			if err != nil {
				return err
			}
			if ended || !r.Status.Ended() {
				runs = append(runs, showRun(r))
			}
		}
		return nil
	})
	return runs, err
}

func showRun(r fsm.Record) fabric.Run {
	return fabric.Run{
		ID: r.ID, Definition: r.Definition, Resource: r.Resource, Status: string(r.Status), Step: r.Step, Attempt: r.Attempt,
		NotBefore: r.NotBefore, Error: r.Error, CreatedAt: r.CreatedAt, UpdatedAt: r.UpdatedAt,
	}
}
