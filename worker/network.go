package worker

import (
	"context"
	"net"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/store"
)

// Network gives machines a network of their own.
type Network interface {
	// Attach makes the machine's network, or finds it: it is idempotent.
	Attach(ctx context.Context, spec network.Spec) (network.Attachment, error)
	// Detach removes it. It is idempotent.
	Detach(ctx context.Context, machine bourse.MachineID) error
	// Recover restores the rules of the networks to keep, and removes all
	// others. It is called once, before anything else.
	Recover(ctx context.Context, keep []network.Spec) error
	// Namespace gives the path of a machine's network namespace, whether it is
	// there or not.
	Namespace(machine bourse.MachineID) string
	// Dial connects to a TCP port of a machine.
	Dial(ctx context.Context, machine bourse.MachineID, port uint16) (net.Conn, error)
	// Labels are the facts of the network, "network": "private" say.
	Labels() map[string]string
}

// private tells whether a machine of this config gets a network of its own.
func (w *Worker) private(c *bourse.Config) bool {
	switch {
	case w.cfg.Network == nil || w.cfg.NetworkMode == NetworkHost || c.Image == bourse.ImagePull:
		return false
	case w.cfg.NetworkMode == NetworkAll:
		return true
	}
	return c.Image != bourse.ImageHost
}

// address records m's address in the private network of its app, as the app
// stands in this transaction. It is m's for life, whatever becomes of the app.
func address(tx *store.Tx, m *bourse.Machine) error {
	app, ok, err := tx.App(m.App)
	if err != nil {
		return err
	}
	if !ok {
		return bourse.Errorf(bourse.CodeInternal, "app %s of machine %s has no record", m.App, m.ID)
	}
	m.Network = app.PrivateNetwork()
	m.PrivateIP = bourse.PrivateAddress(m.Network, m.ID)
	return nil
}

func specOf(m *bourse.Machine) network.Spec {
	return network.Spec{Machine: m.ID, App: m.App, Network: m.Network, Region: m.Region}
}

// attachNetwork makes m's network; nil when m uses the host's.
func (w *Worker) attachNetwork(ctx context.Context, m *bourse.Machine) (*driver.Network, error) {
	if !m.PrivateIP.IsValid() {
		return nil, nil
	}
	if w.cfg.Network == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "machine %s has an address of its own, and the worker was started without networks", m.ID)
	}
	at, err := w.cfg.Network.Attach(ctx, specOf(m))
	if err != nil {
		return nil, err
	}
	return namesOf(m, &driver.Network{Namespace: at.Namespace, Hosts: at.Hosts, Resolver: at.Resolver})
}

func (w *Worker) detachNetwork(ctx context.Context, m *bourse.Machine) error {
	if w.cfg.Network == nil || !m.PrivateIP.IsValid() {
		return nil
	}
	return w.cfg.Network.Detach(ctx, m.ID)
}

// recoverNetworks restores the networks of the machines that may run, and
// removes all others.
func (w *Worker) recoverNetworks(ctx context.Context) error {
	if w.cfg.Network == nil {
		return nil
	}
	var keep []network.Spec
	err := w.store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if m.PrivateIP.IsValid() && mayRun(&m) {
				keep = append(keep, specOf(&m))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.cfg.Network.Recover(ctx, keep)
}

// mayRun tells whether m runs, or will without being asked to.
func mayRun(m *bourse.Machine) bool {
	switch m.State {
	case bourse.StateStarting, bourse.StateStarted, bourse.StateStopping, bourse.StateRestarting:
		return true
	case bourse.StateDestroying:
		return alive(m)
	case bourse.StateCreated, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroyed:
		return false
	}
	return false
}
