package worker

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"strconv"
	"sync"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/fabric"
)

func (w *Worker) handleStreams(mux *http.ServeMux) {
	mux.HandleFunc(fabric.PathUsage, reply(func(r *http.Request) (fabric.Usage, error) {
		return w.usage(r.Context(), machineID(r))
	}))
	mux.HandleFunc(fabric.PathExecStream, func(rw http.ResponseWriter, r *http.Request) {
		m, d, err := w.runningOn(r.Context(), machineID(r))
		if err != nil {
			fabric.WriteFailure(rw, err)
			return
		}
		fabric.ServeExec(rw, r, func(ctx context.Context, streams fabric.ExecIO) (bourse.Exit, error) {
			return execStream(ctx, d, taskOf(&m), streams)
		})
	})
	mux.HandleFunc(fabric.PathTunnel, func(rw http.ResponseWriter, r *http.Request) {
		conn, err := w.dial(r.Context(), machineID(r), r.URL.Query().Get("port"))
		if err != nil {
			fabric.WriteFailure(rw, err)
			return
		}
		fabric.ServeTunnel(rw, r, conn)
	})
}

// runningOn gives a machine that must be started, and its driver.
func (w *Worker) runningOn(ctx context.Context, id bourse.MachineID) (bourse.Machine, driver.Driver, error) {
	m, err := w.running(ctx, id)
	if err != nil {
		return m, nil, err
	}
	d, err := w.driverOf(m.Config.Image)
	return m, d, err
}

// execStream runs a command beside a task, its streams those of a caller.
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

// passSizes passes sizes of a terminal on until ctx ends.
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

// dial connects to a TCP port of a machine. One that uses the host's network
// has only the ports that it was given or has said are its own: a tunnel is no
// way into the host.
func (w *Worker) dial(ctx context.Context, id bourse.MachineID, text string) (net.Conn, error) {
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return nil, bourse.Errorf(bourse.CodeInvalid, "invalid port %s: use 1 to 65535", bourse.Quoted(text))
	}
	m, err := w.running(ctx, id)
	if err != nil {
		return nil, err
	}
	if isPull(m.Config.Image) { // this host's ports are none of its
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs where its poller is: there is no way to its ports", id)
	}
	if m.PrivateIP.IsValid() {
		if w.cfg.Network == nil {
			return nil, bourse.Errorf(bourse.CodeUnavailable, "the worker was started without networks")
		}
		return w.cfg.Network.Dial(ctx, id, uint16(port))
	}
	if !ownsPort(&m, int(port)) {
		return nil, bourse.Errorf(bourse.CodeForbidden, "machine %s uses the host's network, and port %d is neither its $PORT nor one of its services'", id, port)
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", text))
	if err != nil && !errors.Is(err, context.Canceled) {
		err = bourse.Errorf(bourse.CodeUnavailable, "connect to port %d of machine %s: %w", port, id, err)
	}
	return conn, err
}

// ownsPort tells whether a port of the host is m's, as far as anyone can say.
func ownsPort(m *bourse.Machine, port int) bool {
	if port == m.Boot.Port || m.Config.Env[envPort] == strconv.Itoa(port) {
		return true
	}
	var services []struct {
		InternalPort int `json:"internal_port"`
	}
	if len(m.Config.Services) == 0 || json.Unmarshal(m.Config.Services, &services) != nil {
		return false
	}
	for _, s := range services {
		if s.InternalPort == port {
			return true
		}
	}
	return false
}
