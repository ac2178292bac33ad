package machines

import (
	"cmp"
	"context"
	"errors"
	"math/rand/v2"
	"syscall"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// portOf returns m's port: the one that its services name if that is in the worker's range and free, or else
// the one that it has, which it keeps for life, or else any that is free. It is 0 for
// a machine that has all ports of an address of its own or whose environment names
// one. The transaction that records it looks again: see portUntaken.
func (o *operations) portOf(m *bourse.Machine) (port int, err error) {
	if !admit.NeedsPort(&m.Config, m.PrivateIP.IsValid()) {
		return 0, nil
	}
	declared := admit.DeclaredPort(&m.Config, o.host.Ports)
	if port = m.Boot.Port; port != 0 && (declared == 0 || declared == port) {
		return port, nil
	}
	viewErr := o.state.Store.View(func(tx *store.Tx) error {
		switch {
		case declared != 0 && isFree(tx, declared):
			port = declared
		case port == 0:
			port, err = freePort(tx, o.host.Ports)
		}
		return nil
	})
	return port, cmp.Or(viewErr, err)
}

// isFree reports whether no machine has a port, stopped ones included, and nothing
// on the host listens on it.
func isFree(tx *store.Tx, port int) bool {
	_, taken := tx.PortUser(port)
	return !taken && bind(port) == nil
}

// freePort returns a port that no machine has and no one on the host listens on
// now: the next one from a random place.
func freePort(tx *store.Tx, p admit.PortRange) (int, error) {
	n := p.Last - p.First + 1
	from := rand.IntN(n)
	for i := range n {
		port := p.First + (from+i)%n
		if isFree(tx, port) {
			return port, nil
		}
	}
	return 0, bourse.Errorf(bourse.CodeUnavailable, "no free port in %d-%d", p.First, p.Last)
}

// bind returns the error of binding a port of all addresses: EADDRINUSE while a
// program listens on it. It does not listen itself, so of two that ask for one
// port at the same moment neither finds the other.
func bind(port int) error {
	syscall.ForkLock.RLock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fd)
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return err
	}
	if err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err == nil {
		err = syscall.Bind(fd, &syscall.SockaddrInet4{Port: port})
	}
	return errors.Join(err, syscall.Close(fd))
}

// portForeign refuses to start m while another program listens on its port, which
// it must have taken while m was stopped.
func portForeign(ctx context.Context, s *state.State, m *bourse.Machine) error {
	if m.Boot.Port == 0 || !errors.Is(bind(m.Boot.Port), syscall.EADDRINUSE) {
		return nil
	}
	if now, err := s.Machine(ctx, m.ID); err != nil || now.Boot.Number != m.Boot.Number {
		return err // started meanwhile: it listens itself
	}
	return bourse.Errorf(bourse.CodeFailedPrecondition, "machine %s cannot start: another program on its host listens on port %d, its $PORT", m.ID, m.Boot.Port)
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
