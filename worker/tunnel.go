package worker

import (
	"context"
	"errors"
	"net"
	"slices"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/workload"
)

// dial connects to a TCP port of a machine. One that uses the host's network
// has only the ports that it was given or has said are its own: a tunnel is no
// way into the host.
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

// dialTo is dial for a machine that runs.
func (w *Worker) dialTo(ctx context.Context, m *bourse.Machine, port int) (net.Conn, error) {
	if m.Config.ImageKind() == bourse.PollerImage { // this host's ports are none of its
		return nil, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s runs where its poller is: there is no way to its ports", m.ID)
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
	port = own // what a service calls by another number may be another machine's
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil && !errors.Is(err, context.Canceled) {
		err = bourse.Errorf(bourse.CodeUnavailable, "connect to port %d of machine %s: %w", port, m.ID, err)
	}
	return conn, err
}

// serves reports whether a service of m is on this internal port.
func serves(m *bourse.Machine, port int) bool {
	return slices.ContainsFunc(workload.Services(&m.Config), func(s workload.Service) bool { return s.InternalPort == port })
}
