package admit

import (
	"fmt"
	"strconv"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/workload"
)

// EnvPort names the variable in which a machine finds its port.
const EnvPort = "PORT"

// ResourcePorts is what a refusal calls the ports of $PORT.
const ResourcePorts = "ports"

// PortRange is where the ports come from that machines find in $PORT, both ends
// included.
type PortRange struct {
	First, Last int
}

// Validate reports CodeInvalid for a range that is empty or out of 1 to 65535.
func (p PortRange) Validate() error {
	if p.First < 1 || p.Last > 65535 || p.Last < p.First {
		return bourse.Errorf(bourse.CodeInvalid, "port range %d-%d: use two ports from 1 to 65535, the smaller first", p.First, p.Last)
	}
	return nil
}

// NeedsPort reports whether a machine needs one of the host's ports: not when
// its environment names one, it has all of an address of its own, or it is
// elsewhere.
func NeedsPort(c *bourse.Config, private bool) bool {
	_, own := c.Env[EnvPort]
	return !own && !private && c.ImageKind() != bourse.PollerImage
}

// DeclaredPort returns the port that a machine on the host's network is given as
// its $PORT if nothing else has it: the first one of the worker's range that its
// services name. It is 0 if they name none. Ports outside the range are not the
// worker's to give: they may belong to another worker of the host, whose machine
// would get this one's requests, or to a server.
func DeclaredPort(c *bourse.Config, ports PortRange) int {
	for _, s := range workload.Services(c) {
		if s.Protocol == workload.ProtocolTCP && s.InternalPort >= ports.First && s.InternalPort <= ports.Last {
			return s.InternalPort
		}
	}
	return 0
}

// PortOf returns the port on which a machine serves what its service says is on
// internal port service; 0 means $PORT. A machine on the host's network has the
// port that its $PORT says and no other, whatever the service calls it: the number
// may be another machine's there. CodeFailedPrecondition when it has none.
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
	return 0, bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s has no $PORT: its environment has a PORT that is no port", m.ID)
}

// port refuses an order whose machine would find no port that is not another
// machine's.
func (h *Host) port(tx *store.Tx, order *bourse.Order) *bourse.Refusal {
	if order.Config.Image == "" || !NeedsPort(&order.Config, h.Private[order.Config.ImageKind()]) ||
		tx.PortLeft(h.Ports.First, h.Ports.Last) {
		return nil
	}
	return &bourse.Refusal{
		Reason: bourse.RefusedResource, Resource: ResourcePorts, Wanted: 1,
		Detail: fmt.Sprintf("insufficient ports: wanted 1, free 0 of %d-%d", h.Ports.First, h.Ports.Last),
	}
}
