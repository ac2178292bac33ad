package worker

import (
	"math/rand/v2"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
)

const (
	envPort   = "PORT"
	portTries = 64
)

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
// of an address of its own.
func (w *Worker) pickPort(m *bourse.Machine) (int, error) {
	if m.PrivateIP.IsValid() || isPull(m.Config.Image) { // it has all ports, or is elsewhere
		return 0, nil
	}
	return w.cfg.Ports.pick(&m.Config)
}

// pick gives a port that nobody on the host listens on now, 0 when the
// machine's own environment names one. Whether another machine has it is
// checked in the transaction that records it.
func (p PortRange) pick(c *bourse.Config) (int, error) {
	if _, own := c.Env[envPort]; own {
		return 0, nil
	}
	for range portTries {
		port := p.First + rand.IntN(p.Last-p.First+1)
		if bindable(port) {
			return port, nil
		}
	}
	return 0, bourse.Errorf(bourse.CodeUnavailable, "no free port in %d-%d after %d tries", p.First, p.Last, portTries)
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

// portUntaken reports errTaken when a living machine of this worker has the
// port.
func portUntaken(tx *store.Tx, port int) error {
	if port == 0 {
		return nil
	}
	if _, taken := tx.PortUser(port); taken {
		return errTaken
	}
	return nil
}
