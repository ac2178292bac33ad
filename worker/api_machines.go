package worker

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
	"github.com/bourse-dev/bourse/internal/codec"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/machines"
	"github.com/bourse-dev/bourse/worker/reach"
	"github.com/bourse-dev/bourse/worker/state"
	"github.com/bourse-dev/bourse/worker/watch"
	"github.com/bourse-dev/bourse/workload"
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

// maxWait is the maximum duration of a wait request.
const maxWait = 5 * time.Minute

// waitQuery waits until a machine is in a state that a client requested.
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

// logs writes a machine's output to out, line by line.
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
		out.Begin() // send the response's header now, because the first line may come much later
	}
	return d.Logs(ctx, q.Machine, driver.LogQuery{After: q.After, Since: q.Since, Tail: q.Tail, Follow: q.Follow}, func(l driver.LogLine) error {
		return out.Write(fabric.LogLine{At: l.At, Stream: l.Stream, Text: l.Text, Position: l.Position})
	})
}

// handleAttach executes a command in a machine, with streamed input and output.
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

// handleTunnel copies bytes between a client and a machine's port.
func (w *Worker) handleTunnel(rw http.ResponseWriter, r *http.Request, to fabric.TunnelRequest) {
	conn, err := w.dial(r.Context(), to.Machine, to.Port)
	if err != nil {
		fabric.WriteFailure(rw, err)
		return
	}
	fabric.ServeTunnel(rw, r, watch.Conn(conn, func() { w.uses.Touch(to.Machine) }))
}

// runningOn returns a machine and its driver. It returns an error if the machine is not running.
func (w *Worker) runningOn(ctx context.Context, id bourse.MachineID) (bourse.Machine, driver.Driver, error) {
	m, err := w.machines.Running(ctx, id)
	if err != nil {
		return m, nil, err
	}
	d, err := w.machines.DriverOf(&m)
	return m, d, err
}

// processes returns a running machine's processes. Errors: failed_precondition if the machine is
// not running or its processes are not visible on this host, not_found if the machine does not
// exist or its program has just exited.
func (w *Worker) processes(ctx context.Context, id bourse.MachineID) ([]bourse.Process, error) {
	m, d, err := w.runningOn(ctx, id)
	if err != nil {
		return nil, err
	}
	if m.Config.ImageKind() == bourse.PollerImage {
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "a poller runs machine %s: its processes are not visible", id)
	}
	status, err := d.Inspect(ctx, machines.TaskOf(&m))
	if err == nil && status.PID == 0 {
		err = bourse.Errorf(bourse.CodeFailedPrecondition, "the program of machine %s has ended", id)
	}
	if err != nil {
		return nil, err
	}
	return machines.Table{Root: "/proc"}.Of(status.PID)
}

// execStream executes a command in a machine and connects it to the caller's streams.
func execStream(ctx context.Context, d driver.Driver, id driver.TaskID, streams fabric.ExecIO) (bourse.Exit, error) {
	exec := driver.Exec{Command: streams.Start.Command, Stdin: streams.Stdin, Stdout: streams.Stdout, Stderr: streams.Stderr}
	var resizing sync.WaitGroup
	if t := streams.Start.Terminal; t != nil {
		over, cancel := context.WithCancel(ctx)
		defer resizing.Wait()
		defer cancel()
		sizes := make(chan driver.Size)
		resizing.Go(func() { passSizes(over, streams.Resize, sizes) })
		exec.Terminal = &driver.Terminal{Size: driver.Size(t.Size), Term: t.Term, Resize: sizes}
	}
	res, err := d.Exec(ctx, id, exec)
	return res.Exit, err
}

// passSizes forwards changes in the terminal's size until ctx is done.
func passSizes(ctx context.Context, from <-chan fabric.Size, to chan<- driver.Size) {
	for {
		select {
		case <-ctx.Done():
			return
		case size := <-from:
			select {
			case <-ctx.Done():
				return
			case to <- driver.Size(size):
			}
		}
	}
}

// dial connects to a TCP port of a machine. If the machine uses the host's network, only
// its $PORT and its services' ports are allowed, so that tunnels do not give access to
// the rest of the host.
func (w *Worker) dial(ctx context.Context, id bourse.MachineID, port uint16) (net.Conn, error) {
	if port == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid port 0: use 1 to 65535")
	}
	m, err := w.machines.Running(ctx, id)
	if err != nil {
		return nil, err
	}
	return w.dialTo(ctx, &m, int(port))
}

// dialTo is like dial, but does not check whether the machine is running.
func (w *Worker) dialTo(ctx context.Context, m *bourse.Machine, port int) (net.Conn, error) {
	if m.Config.ImageKind() == bourse.PollerImage { // a poller's machine has no ports on this host
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "a poller runs machine %s: its ports cannot be reached", m.ID)
	}
	if m.PrivateIP.IsValid() {
		if w.cfg.Network == nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker was started without networks")
		}
		return w.cfg.Network.Dial(ctx, m.ID, uint16(port))
	}
	own, err := admit.PortOf(m, port)
	if err != nil {
		return nil, err
	}
	if port != own && !serves(m, port) {
		return nil, bourse.Errorf(bourse.CodeForbidden, "machine %s uses the host's network, and port %d is neither its $PORT nor one of its services'", m.ID, port)
	}
	port = own // the service's port may belong to another machine on this host
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil && !errors.Is(err, context.Canceled) {
		err = bourse.Errorf(bourse.CodeUnavailable, "connect to port %d of machine %s: %w", port, m.ID, err)
	}
	return conn, err
}

// serves reports whether one of m's services has this internal port.
func serves(m *bourse.Machine, port int) bool {
	return slices.ContainsFunc(workload.Services(&m.Config), func(s workload.Service) bool { return s.InternalPort == port })
}
