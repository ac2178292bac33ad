package machines

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/state"
)

// Network manages machines' private networks. Its methods are idempotent.
type Network interface {
	// Attach creates a machine's network and returns it. If the network already exists, Attach only returns it.
	Attach(ctx context.Context, spec network.Spec) (network.Attachment, error)
	// Detach removes a machine's network.
	Detach(ctx context.Context, machine bourse.MachineID) error
	// Recover restores the firewall rules of the networks in keep, and removes all other networks. It must be called
	// once, before Attach and Detach.
	Recover(ctx context.Context, keep []network.Spec) error
	// Namespace returns the path of a machine's network namespace, even if the namespace does not exist.
	Namespace(machine bourse.MachineID) string
}

// Scratch manages size-limited directories that store the changes that containers make to their root file systems. Its
// methods are idempotent.
type Scratch interface {
	Scratch(ctx context.Context, machine bourse.MachineID, sizeMiB int64) (path string, err error)
	RemoveScratch(ctx context.Context, machine bourse.MachineID) error
}

// Attached contains a machine's attachments: its network, mounts and scratch space.
type Attached struct {
	Network *driver.Network
	Mounts  []driver.Mount
	Scratch string
}

// isHostProgram reports whether m's program runs directly on this host or on a poller's host, without a private network
// or mounts. Such a machine has no attachments and starts in one step.
func isHostProgram(m *bourse.Machine) bool {
	return m.Config.ImageKind() != bourse.RegistryImage && !m.PrivateIP.IsValid() && len(m.Config.Mounts) == 0
}

// setUp creates m's attachments and returns them. m must be recorded as starting. setUp is idempotent: it returns
// attachments that already exist. tearDown and removeAll undo it.
func (ms *Machines) setUp(ctx context.Context, m *bourse.Machine) (Attached, error) {
	var out Attached
	if isHostProgram(m) {
		return out, nil
	}
	var err error
	if out.Network, err = ms.attachNetwork(ctx, m); err != nil {
		return out, fmt.Errorf("set up network of machine %s: %w", m.ID, err)
	}
	if out.Mounts, err = ms.volumes.Mount(ctx, m); err != nil {
		return out, fmt.Errorf("mount volumes of machine %s: %w", m.ID, err)
	}
	if n := ms.host.Ledger.Scratch(&m.Config); n > 0 {
		if ms.scratch == nil {
			return out, bourse.Errorf(bourse.CodeInvalid, "the worker can no longer limit the root file system of machine %s", m.ID)
		}
		if out.Scratch, err = ms.scratch.Scratch(ctx, m.ID, int64(n)); err != nil {
			return out, fmt.Errorf("set up root file system of machine %s: %w", m.ID, err)
		}
	}
	return out, nil
}

// tearDown undoes setUp, except that it keeps the changes to the machine's root file system. The machine also keeps its
// address, which is derived from its id.
func (ms *Machines) tearDown(ctx context.Context, m *bourse.Machine) error {
	if isHostProgram(m) {
		return nil
	}
	return errors.Join(ms.volumes.Unmount(ctx, m), ms.detachNetwork(ctx, m))
}

// removeAll is like tearDown, but also removes the changes to the machine's root file system.
func (ms *Machines) removeAll(ctx context.Context, m *bourse.Machine) error {
	err := ms.tearDown(ctx, m)
	if ms.scratch != nil && m.Config.ImageKind() == bourse.RegistryImage {
		err = errors.Join(err, ms.scratch.RemoveScratch(ctx, m.ID))
	}
	return err
}

const (
	tearDownTries   = 3
	tearDownTimeout = 10 * time.Second // timeout of each attempt
)

// tryTearDown calls tearDown for a machine whose exit is about to be recorded. It gives up after a few attempts, so
// that the record is not delayed for long. The machine's next start reuses any attachments that remain. If the machine
// does not start again, recovery or the machine's destruction removes them. tryTearDown returns an error only if ctx is
// done. In that case, the exit must not be recorded.
func (ms *Machines) tryTearDown(ctx context.Context, m *bourse.Machine) error {
	for n := range tearDownTries {
		try, cancel := context.WithTimeout(ctx, tearDownTimeout)
		err := ms.tearDown(try, m)
		cancel()
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ms.state.Log.Warn("remove attachments of stopped machine failed", "machine", m.ID, "attempt", n+1, "err", err)
		state.Sleep(ctx, bourse.RestartBackoff(n+1))
	}
	return context.Cause(ctx)
}

// specOf returns the network spec of a machine.
func specOf(m *bourse.Machine) network.Spec {
	return network.Spec{Machine: m.ID, App: m.App, Network: m.Network}
}

// attachNetwork creates m's network. It returns nil if m uses the host's network.
func (ms *Machines) attachNetwork(ctx context.Context, m *bourse.Machine) (*driver.Network, error) {
	if !m.PrivateIP.IsValid() {
		return nil, nil
	}
	if ms.network == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "machine %s has a private network, but the worker was started without networks", m.ID)
	}
	at, err := ms.network.Attach(ctx, specOf(m))
	if err != nil {
		return nil, err
	}
	return namesOf(m, &driver.Network{Namespace: at.Namespace, Hosts: at.Hosts, Resolver: at.Resolver}), nil
}

func (ms *Machines) detachNetwork(ctx context.Context, m *bourse.Machine) error {
	if ms.network == nil || !m.PrivateIP.IsValid() {
		return nil
	}
	return ms.network.Detach(ctx, m.ID)
}

// namesOf adds the host name and DNS settings from a machine's config to the machine's network. The default host name
// is the machine's id.
func namesOf(m *bourse.Machine, n *driver.Network) *driver.Network {
	d := cmp.Or(m.Config.DNS, &bourse.DNS{})
	n.Hostname = string(m.ID)
	if d.Hostname != "" {
		n.Hostname = d.Hostname
	}
	if len(d.Nameservers) > 0 {
		n.Resolver = d.Nameservers
	}
	n.Search = d.Searches
	for _, o := range d.Options {
		if o.Value != "" {
			o.Name += ":" + o.Value
		}
		n.Options = append(n.Options, o.Name)
	}
	n.Hosts = slices.Clone(n.Hosts)
	if d.HostnameFQDN != "" {
		n.Hosts = append(n.Hosts, m.PrivateIP.String()+"\t"+d.HostnameFQDN)
	}
	return n
}

// address sets m's private network and address according to the app's record. m keeps both even if the app's network
// changes later.
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

// recoverNetworks restores the networks of machines that may run, and removes all
// others.
func (ms *Machines) recoverNetworks(ctx context.Context) error {
	if ms.network == nil {
		return nil
	}
	var keep []network.Spec
	err := ms.state.Store.View(func(tx *store.Tx) error {
		for m, err := range tx.Machines() {
			if err != nil {
				return err
			}
			if m.PrivateIP.IsValid() && willRun(&m) {
				keep = append(keep, specOf(&m))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ms.network.Recover(ctx, keep)
}

// willRun reports whether m is running or will start without another request.
func willRun(m *bourse.Machine) bool {
	switch m.State {
	case bourse.StateStarting, bourse.StateStarted, bourse.StateSuspending, bourse.StateSuspended, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateDestroying:
		return mayHaveTask(m)
	case bourse.StateCreated, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroyed:
		return false
	}
	return false
}

// reportLostNetworks looks for running machines whose network namespace was removed while the daemon was down. Running
// programs do not join a new namespace, so these machines have no network until they are restarted. The worker restarts
// machines only on request, so reportLostNetworks only reports the problem, in the log and in the machines' events.
func (ms *Machines) reportLostNetworks(ctx context.Context, running []driver.TaskID) {
	for _, id := range running {
		m, err := ms.state.Machine(ctx, id.Machine)
		if err != nil || ctx.Err() != nil || ms.network == nil || !m.PrivateIP.IsValid() || m.State != bourse.StateStarted {
			continue
		}
		if lossReported(&m) || !outsideNetwork(m.Boot.PID, ms.network.Namespace(m.ID)) {
			continue
		}
		ms.state.Log.Error("machine is running without its network, restart it", "machine", m.ID, "app", m.App)
		err = ms.state.Commit(ctx, m.ID, func(tx *store.Tx) error {
			_, err := state.ChangeMachine(tx, m.ID, func(now *bourse.Machine) (bool, []bourse.Event, error) {
				if now.State != bourse.StateStarted || now.Boot.Number != m.Boot.Number {
					return false, nil, nil
				}
				return true, []bourse.Event{{Type: bourse.EventCutOff, State: now.State, Source: bourse.SourceWorker}}, nil
			})
			return err
		})
		if err != nil {
			ms.state.Log.Warn("record loss of network failed", "machine", m.ID, "err", err)
		}
	}
}

// outsideNetwork reports whether a process is known to be outside a network namespace.
func outsideNetwork(pid int, namespace string) bool {
	own, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	other, err := os.Stat(namespace)
	return err == nil && !os.SameFile(own, other)
}

// lossReported reports whether an event since m's last start already records the loss of m's network.
func lossReported(m *bourse.Machine) bool {
	i := slices.IndexFunc(m.LastEvents, func(e bourse.Event) bool { // newest first
		return e.Type == bourse.EventCutOff || e.Type == bourse.EventStart
	})
	return i >= 0 && m.LastEvents[i].Type == bourse.EventCutOff
}
