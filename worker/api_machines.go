package worker

import (
	"context"
	"net/http"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/reach"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/worker/watch"
)

// machineEvents returns a machine's latest events.
func (w *Worker) machineEvents(ctx context.Context, q fabric.EventsQuery) ([]bourse.Event, error) {
	if err := w.store.Sync(ctx); err != nil {
		return nil, err
	}
	var m bourse.Machine
	err := w.store.View(func(tx *store.Tx) error {
		var err error
		m, err = state.ReadMachine(tx, q.Machine, max(0, q.Limit))
		return err
	})
	return m.LastEvents, err
}

// maxWait bounds a wait, whatever its caller says.
const maxWait = 5 * time.Minute

// waitQuery waits for what its caller asks for.
func (w *Worker) waitQuery(ctx context.Context, q fabric.WaitQuery) (fabric.WaitReply, error) {
	want := reach.StateQuery{Instance: q.Instance, After: q.After}
	for _, s := range q.States {
		want.States = append(want.States, string(s))
	}
	limit := time.Duration(q.Timeout)
	if limit <= 0 || limit > maxWait {
		limit = maxWait
	}
	return reach.AwaitState(ctx, w.state, q.Machine, want, limit)
}

// logs writes a machine's output as lines.
func (w *Worker) logs(ctx context.Context, q fabric.LogsQuery, out *codec.Writer) error {
	m, err := w.state.Machine(ctx, q.Machine)
	if err != nil {
		return err
	}
	d, err := w.machines.DriverOf(&m)
	if err != nil {
		return err
	}
	out.Buffered = !q.Follow
	if q.Follow {
		out.Begin() // the first line may be long in coming
	}
	return d.Logs(ctx, q.Machine, driver.LogQuery{After: q.After, Since: q.Since, Tail: q.Tail, Follow: q.Follow}, func(l driver.LogLine) error {
		return out.Write(fabric.LogLine{At: l.At, Stream: l.Stream, Text: l.Text, Position: l.Position})
	})
}

// handleAttach runs a command whose input and output stream.
func (w *Worker) handleAttach(rw http.ResponseWriter, r *http.Request, id bourse.MachineID) {
	m, d, err := w.runningOn(r.Context(), id)
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	defer w.uses.Begin(id)()
	fabric.ServeExec(rw, r, func(ctx context.Context, streams fabric.ExecIO) (bourse.Exit, error) {
		return execStream(ctx, d, machines.TaskOf(&m), streams)
	})
}

// handleTunnel passes bytes to a port of a machine, and back.
func (w *Worker) handleTunnel(rw http.ResponseWriter, r *http.Request, to fabric.TunnelRequest) {
	conn, err := w.dial(r.Context(), to.Machine, to.Port)
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	fabric.ServeTunnel(rw, r, watch.Conn(conn, func() { w.uses.Touch(to.Machine) }))
}
