package worker

import (
	"cmp"
	"fmt"
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const envPort = "PORT"

// PortRange is where the ports come from that machines are told in $PORT,
// both ends included.
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

// pickPort gives the port for m's next boot, 0 for a machine that has all ports
// of an address of its own or whose environment names one. The transaction
// that records it looks again: see portUntaken.
func (w *Worker) pickPort(m *bourse.Machine) (port int, err error) {
	if !needsPort(&m.Config, m.PrivateIP.IsValid()) {
		return 0, nil
	}
	viewErr := w.store.View(func(tx *store.Tx) error {
		port, err = w.cfg.Ports.pick(tx, m.ID)
		return nil
	})
	return port, cmp.Or(viewErr, err)
}

// needsPort tells whether a machine is told one of the host's ports: not when
// its environment names one, it has all of an address of its own, or it is
// elsewhere.
func needsPort(c *bourse.Config, private bool) bool {
	_, own := c.Env[envPort]
	return !own && !private && !isPull(c.Image)
}

// resourcePorts is what a worker is short of that has no port left.
const resourcePorts = "ports"

// refusePort is the refusal of an order whose machine would find no port that
// is not another machine's, nil when it would.
func (w *Worker) refusePort(tx *store.Tx, order *bourse.Order) *bourse.Refusal {
	switch p := w.cfg.Ports; {
	case order.SkipLaunch || order.Config.Image == "" || !needsPort(&order.Config, w.private(&order.Config)):
		return nil
	case tx.PortLeft(p.First, p.Last):
		return nil
	default:
		return &bourse.Refusal{
			Reason: bourse.RefusedResource, Resource: resourcePorts, Wanted: 1,
			Detail: fmt.Sprintf("insufficient ports: wanted 1, free 0 of %d-%d", p.First, p.Last),
		}
	}
}

// pick gives a port that no other machine has and nobody on the host listens on
// now: the next one from a place of chance.
func (p PortRange) pick(tx *store.Tx, id bourse.MachineID) (int, error) {
	n := p.Last - p.First + 1
	from := rand.IntN(n)
	for i := range n {
		port := p.First + (from+i)%n
		if portUntaken(tx, id, port) == nil && bindable(port) {
			return port, nil
		}
	}
	return 0, bourse.Errorf(bourse.CodeUnavailable, "no free port in %d-%d", p.First, p.Last)
}

// bindable tells whether a port of all addresses can be had now. It asks the
// system directly: every order waits for this.
func bindable(port int) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	return unix.Bind(fd, &unix.SockaddrInet4{Port: port}) == nil
}

// portUntaken reports errTaken when another living machine of this worker has
// the port.
func portUntaken(tx *store.Tx, id bourse.MachineID, port int) error {
	if port == 0 {
		return nil
	}
	if user, taken := tx.PortUser(port); taken && user != id {
		return errTaken
	}
	return nil
}
