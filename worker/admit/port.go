package admit

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/workload"
)

// EnvPort is the name of the environment variable that contains a machine's port.
const EnvPort = "PORT"

// ResourcePorts is the resource that a refusal reports if no $PORT is free.
const ResourcePorts = "ports"

// PortRange is the range of ports that a worker assigns to its machines as $PORT, including both ends.
type PortRange struct {
	First, Last int
}

// Validate returns CodeInvalid if the range is empty or not within 1 to 65535.
func (p PortRange) Validate() error {
	if p.First < 1 || p.Last > 65535 || p.Last < p.First {
		return bourse.Errorf(bourse.CodeInvalid, "port range %d-%d: use two ports from 1 to 65535, the smaller first", p.First, p.Last)
	}
	return nil
}

// maxBinds is the maximum number of ports that a worker tries to bind when it chooses a port. It keeps transactions
// short on hosts where other programs use many ports.
const maxBinds = 64

// Port chooses a machine's $PORT. current is the machine's current port, or 0 if it has none. Port prefers a port that
// one of the machine's services declares, if that port is free and in the worker's range. Otherwise it returns the
// current port, even if another program uses it now. If the machine has no current port, Port returns any free port. It
// returns 0 if the machine does not need a port because its environment sets PORT, it has a private network, or it runs
// on a poller's host.
func (h *Host) Port(tx *store.Tx, c *bourse.Config, private bool, current int) (int, *bourse.Refusal) {
	if _, own := c.Env[EnvPort]; own || private || c.ImageKind() == bourse.PollerImage {
		return 0, nil
	}
	taken := func(port int) bool { _, taken := tx.PortUser(port); return taken }
	declared := declaredPort(c, h.Ports)
	switch {
	case current != 0 && (declared == 0 || declared == current):
		return current, nil
	case declared != 0 && !taken(declared) && bind(declared) == nil:
		return declared, nil
	case current != 0:
		return current, nil
	case !tx.HasFreePort(h.Ports.First, h.Ports.Last):
		return 0, h.FromThisWorker(&bourse.Refusal{
			Reason: bourse.RefusedResource, Resource: ResourcePorts, Wanted: 1,
			Detail: fmt.Sprintf("insufficient ports: wanted 1, free 0 of %d-%d", h.Ports.First, h.Ports.Last),
		})
	}
	port, tried := h.Ports.find(rand.IntN(h.Ports.Last-h.Ports.First+1), taken, bind)
	if port == 0 {
		return 0, h.Refusal(bourse.RefusedUnavailable, fmt.Sprintf("no free port found in %d-%d: all %d ports that were tried are in use by other programs on the host", h.Ports.First, h.Ports.Last, tried))
	}
	return port, nil
}

// find searches the range, starting at an offset, for a port that no machine uses and that can be bound. It returns the
// port, and the number of ports that it tried to bind. The port is 0 if none was found in maxBinds attempts.
func (p PortRange) find(offset int, taken func(int) bool, bind func(int) error) (port, tried int) {
	n := p.Last - p.First + 1
	for i := range n {
		port := p.First + (offset+i)%n
		if taken(port) {
			continue
		}
		if tried++; bind(port) == nil {
			return port, tried
		}
		if tried == maxBinds {
			break
		}
	}
	return 0, tried
}

// declaredPort returns the first port in the worker's range that one of a machine's services declares, or 0 if there is
// none. The worker must not assign ports outside its range, because they may belong to a server or to another worker on
// the host. That server, or a machine of that worker, would then receive this machine's requests.
func declaredPort(c *bourse.Config, ports PortRange) int {
	for _, s := range workload.Services(c) {
		if s.Protocol == workload.ProtocolTCP && s.InternalPort >= ports.First && s.InternalPort <= ports.Last {
			return s.InternalPort
		}
	}
	return 0
}

// PortInUse reports whether any program uses a port. Port 0 is never in use. Do not call it for a port of a running
// machine, whose own program may use the port.
func PortInUse(port int) bool { return port != 0 && errors.Is(bind(port), syscall.EADDRINUSE) }

// bind tries to bind a TCP port on all IPv4 addresses, and releases it. It fails with EADDRINUSE while a program
// listens on the port at an IPv4 address, or uses the port for an outgoing connection. On Linux, two callers that try
// the same port at the same moment both succeed, because bind does not listen.
func bind(port int) error {
	fd, err := socket()
	if err != nil {
		return err
	}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port})
	}
	return errors.Join(err, syscall.Close(fd))
}

// PortOf returns the port on which a machine accepts connections for the service with the given
// internal port. Internal port 0 means $PORT. A machine on the host's network serves only on its
// $PORT, whatever port the service names, because another machine on the host may use the named
// port. PortOf returns CodeFailedPrecondition if the machine has no such port.
func PortOf(m *bourse.Machine, service int) (int, error) {
	if m.PrivateIP.IsValid() && service != 0 {
		return service, nil
	}
	if m.Boot.Port != 0 && !m.PrivateIP.IsValid() {
		return m.Boot.Port, nil
	}
	if own, err := strconv.Atoi(m.Config.Env[EnvPort]); err == nil && own > 0 && own < 65536 {
		return own, nil
	}
	if m.PrivateIP.IsValid() {
		return 0, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s has no $PORT: name the internal_port of its service", m.ID)
	}
	return 0, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s has no $PORT: the PORT in its environment is not a port", m.ID)
}
