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

// Network gives machines a network of their own.
type Network interface {
	// Attach makes the machine's network, or finds it: it is idempotent.
	Attach(ctx context.Context, spec network.Spec) (network.Attachment, error)
	// Detach removes it. It is idempotent.
	Detach(ctx context.Context, machine bourse.MachineID) error
	// Recover restores the rules of the networks to keep, and removes all
	// others. It is called once, before anything else.
	Recover(ctx context.Context, keep []network.Spec) error
	// Namespace returns the path of a machine's network namespace, whether it is
	// there or not.
	Namespace(machine bourse.MachineID) string
}

// Scratch makes directories for what a container writes into its root file
// system, each of a limited size. Both methods are idempotent.
type Scratch interface {
	Scratch(ctx context.Context, machine bourse.MachineID, sizeMiB int64) (path string, err error)
	RemoveScratch(ctx context.Context, machine bourse.MachineID) error
}

// Attached is what one machine has.
type Attached struct {
	Network *driver.Network
	Mounts  []driver.Mount
	Scratch string
}

// IsPlain reports whether m is nothing but a program, of the host or of a poller: such a machine needs no fit, and is started in one step.
func IsPlain(m *bourse.Machine) bool {
	return m.Config.ImageKind() != bourse.RegistryImage && !m.PrivateIP.IsValid() && len(m.Config.Mounts) == 0
}

// Prepare makes what m has of the host, or finds it: it is idempotent. m is
// recorded as starting, and of its effects Shed or Clear leaves nothing.
func (ms *Machines) setUp(ctx context.Context, m *bourse.Machine) (Attached, error) {
	var out Attached
	if IsPlain(m) {
		return out, nil
	}
	var err error
	if out.Network, err = ms.attachNetwork(ctx, m); err != nil {
		return out, fmt.Errorf("network of machine %s: %w", m.ID, err)
	}
	if out.Mounts, err = ms.volumes.Mount(ctx, m); err != nil {
		return out, fmt.Errorf("volumes of machine %s: %w", m.ID, err)
	}
	if n := ms.host.Ledger.Scratch(&m.Config); n > 0 {
		if ms.scratch == nil {
			return out, bourse.Errorf(bourse.CodeInvalid, "the worker can no longer limit the root file system of machine %s", m.ID)
		}
		if out.Scratch, err = ms.scratch.Scratch(ctx, m.ID, int64(n)); err != nil {
			return out, fmt.Errorf("root file system of machine %s: %w", m.ID, err)
		}
	}
	return out, nil
}

// Vacate undoes Prepare but for what a stopped machine keeps: what it wrote,
// and its address, which follows from its id.
func (ms *Machines) tearDown(ctx context.Context, m *bourse.Machine) error {
	if IsPlain(m) {
		return nil
	}
	return errors.Join(ms.volumes.Unmount(ctx, m), ms.detachNetwork(ctx, m))
}

// Clear undoes Prepare altogether.
func (ms *Machines) removeAll(ctx context.Context, m *bourse.Machine) error {
	err := ms.tearDown(ctx, m)
	if ms.scratch != nil && m.Config.ImageKind() == bourse.RegistryImage {
		err = errors.Join(err, ms.scratch.RemoveScratch(ctx, m.ID))
	}
	return err
}

const (
	shedTries   = 3
	shedTimeout = 10 * time.Second // of each try
)

// Shed is Vacate for a machine whose end waits to be recorded. It does not
// keep that waiting for long: what is left is reused by the machine's next
// start, or removed when the worker recovers or the machine is destroyed. The
// error is that of ctx: then nothing may be recorded.
func (ms *Machines) tryTearDown(ctx context.Context, m *bourse.Machine) error {
	for n := range shedTries {
		try, cancel := context.WithTimeout(ctx, shedTimeout)
		err := ms.tearDown(try, m)
		cancel()
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		ms.state.Log.Warn("release what a stopped machine had of the host", "machine", m.ID, "attempt", n+1, "err", err)
		state.Rest(ctx, bourse.RestartBackoff(n+1))
	}
	return context.Cause(ctx)
}

// SpecOf returns the network that a machine is to have.
func SpecOf(m *bourse.Machine) network.Spec {
	return network.Spec{Machine: m.ID, App: m.App, Network: m.Network}
}

// attachNetwork makes m's network; nil when m uses the host's.
func (ms *Machines) attachNetwork(ctx context.Context, m *bourse.Machine) (*driver.Network, error) {
	if !m.PrivateIP.IsValid() {
		return nil, nil
	}
	if ms.network == nil {
		return nil, bourse.Errorf(bourse.CodeInvalid, "machine %s has an address of its own, and the worker was started without networks", m.ID)
	}
	at, err := ms.network.Attach(ctx, SpecOf(m))
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

// namesOf adds to a machine's network what its config says of names. Without
// a name of its own the machine's is its id.
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

// address records m's address in the private network of its app, as the app
// is in this transaction. It is m's for life, whatever becomes of the app.
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

// recoverNetworks restores the networks of the machines that may run, and
// removes all others.
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
			if m.PrivateIP.IsValid() && mayRun(&m) {
				keep = append(keep, SpecOf(&m))
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ms.network.Recover(ctx, keep)
}

// mayRun reports whether m runs, or will without being asked to.
func mayRun(m *bourse.Machine) bool {
	switch m.State {
	case bourse.StateStarting, bourse.StateStarted, bourse.StateSuspending, bourse.StateSuspended, bourse.StateStopping, bourse.StateRestarting, bourse.StateReplacing:
		return true
	case bourse.StateDestroying:
		return alive(m)
	case bourse.StateCreated, bourse.StateStopped, bourse.StateFailed, bourse.StateDestroyed:
		return false
	}
	return false
}

// findCutOff looks, after a start, for machines that live in a network which
// is no longer theirs: its namespace was removed, and the one that
// was made in its place is not joined by a program that runs already. Nothing
// short of a restart helps, and that is not the worker's to decide: it says so
// in the log and in the machine's events.
func (ms *Machines) findCutOff(ctx context.Context, running []driver.TaskID) {
	for _, id := range running {
		m, err := ms.state.Machine(ctx, id.Machine)
		if err != nil || ctx.Err() != nil || ms.network == nil || !m.PrivateIP.IsValid() || m.State != bourse.StateStarted {
			continue
		}
		if toldCutOff(&m) || !cutOff(m.Boot.PID, ms.network.Namespace(m.ID)) {
			continue
		}
		ms.state.Log.Error("machine runs without its network: restart it", "machine", m.ID, "app", m.App)
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
			ms.state.Log.Warn("record that a machine has no network", "machine", m.ID, "err", err)
		}
	}
}

// cutOff reports whether a process is certainly not in a network namespace.
func cutOff(pid int, namespace string) bool {
	own, err := os.Stat(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return false
	}
	other, err := os.Stat(namespace)
	return err == nil && !os.SameFile(own, other)
}

// toldCutOff reports whether m's events say so already since its last start.
func toldCutOff(m *bourse.Machine) bool {
	i := slices.IndexFunc(m.LastEvents, func(e bourse.Event) bool { // newest first
		return e.Type == bourse.EventCutOff || e.Type == bourse.EventStart
	})
	return i >= 0 && m.LastEvents[i].Type == bourse.EventCutOff
}
