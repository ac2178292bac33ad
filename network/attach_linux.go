package network

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"

	"github.com/bourse-dev/bourse"
)

// Attach creates a machine's network and returns the settings for the machine's processes. It is idempotent and may be
// repeated after a crash at any step. A complete network is left unchanged, so the machine's processes and connections
// survive. An incomplete network is recreated. Attach returns CodeFailedPrecondition if the machine belongs to another
// private network.
func (n *Network) Attach(ctx context.Context, spec Spec) (Attachment, error) {
	if err := spec.Validate(); err != nil {
		return Attachment{}, err
	}
	n.recovery.RLock()
	defer n.recovery.RUnlock()
	unlock, err := n.busy.lock(ctx, spec.Machine)
	if err != nil {
		return Attachment{}, err
	}
	defer unlock()
	a, err := n.reserve(spec)
	if err != nil {
		return Attachment{}, err
	}
	if err := n.equip(a); err != nil {
		return Attachment{}, unavailable("attach "+string(spec.Machine), err)
	}
	a, _ = n.find(spec.Machine)
	n.host.fault("attached")
	return spec.attachment(n.host.files.path(spec.Machine), a.ipv4), nil
}

// equip ensures that the machine has its namespace, link, addresses, routes and rules, and records its addresses. If
// building the network fails, equip does not leave any of its parts behind. A network that was already complete is
// never removed. The caller must hold the machine's lock, or recovery's write lock.
func (n *Network) equip(a attached) error {
	id := a.spec.Machine
	if err := n.prepareHost(); err != nil {
		n.drop(id)
		return err
	}
	if own, ok := n.host.isComplete(id); ok {
		a.ipv4 = own.ipv4
		// Another program may have flushed the rules.
		if err := n.firewall.add(a.member()); err != nil {
			return err
		}
		n.settle(a)
		return nil
	}
	a.ipv4 = netip.Addr{}
	if err := n.build(&a); err != nil {
		// Do not leave an incomplete network behind.
		return errors.Join(err, n.detach(id))
	}
	n.settle(a)
	return nil
}

// build creates the parts of a machine's network, in an order that allows traffic only once the machine's rules exist.
func (n *Network) build(a *attached) error {
	id := a.spec.Machine
	if err := n.host.unlink(id); err != nil {
		return err
	}
	ns, err := n.namespace(id)
	if err != nil {
		return err
	}
	defer ns.close()
	return n.host.assign(a, ns, func(claim func(netip.Addr) error) error {
		if a.ipv4, err = n.claimAddress(id, claim); err != nil {
			return err
		}
		return n.firewall.add(a.member())
	})
}

// namespace returns a namespace for the machine. If the machine already has a namespace, namespace returns that one, so
// that the processes in it have a network again. Otherwise, it returns a spare or a new one.
func (n *Network) namespace(id bourse.MachineID) (*namespace, error) {
	file, err := n.host.files.open(id)
	if err == nil {
		return n.host.prepare(file)
	}
	if !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if ns := n.pool.take(); ns != nil {
		return ns, nil
	}
	return n.newNamespace()
}

// newNamespace creates a namespace and prepares it for a machine.
func (n *Network) newNamespace() (*namespace, error) {
	file, err := newNamespace()
	if err != nil {
		return nil, err
	}
	return n.host.prepare(file)
}

// claimAddress claims the first free address for the machine. The host's routes show which addresses are in use,
// including the addresses of other workers' machines, even if those workers are not running.
func (n *Network) claimAddress(id bourse.MachineID, claim func(netip.Addr) error) (netip.Addr, error) {
	for a := range candidates(n.cfg.IPv4, id) {
		n.mu.Lock()
		_, taken := n.owners[a]
		n.mu.Unlock()
		if taken {
			continue
		}
		err := claim(a)
		if err == nil {
			return a, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return netip.Addr{}, fmt.Errorf("add route to %s: %w", a, err)
		}
	}
	return netip.Addr{}, errNoAddress
}

// Detach removes a machine's network. It is idempotent. Processes that are still running in the namespace are
// disconnected immediately.
func (n *Network) Detach(ctx context.Context, id bourse.MachineID) error {
	if err := id.Validate(); err != nil {
		return err
	}
	n.recovery.RLock()
	defer n.recovery.RUnlock()
	unlock, err := n.busy.lock(ctx, id)
	if err != nil {
		return err
	}
	defer unlock()
	return unavailable("detach "+string(id), n.detach(id))
}

// detach removes a machine's network. It removes the link before the rules, because a link without
// rules would have unrestricted access.
func (n *Network) detach(id bourse.MachineID) error {
	if err := n.host.unlink(id); err != nil {
		return err
	}
	n.host.fault("unlinked")
	if err := n.firewall.remove(linkName(id)); err != nil {
		return err
	}
	n.host.fault("unruled")
	if err := n.host.files.remove(id); err != nil {
		return err
	}
	n.drop(id)
	n.host.fault("detached")
	return nil
}
