// Package machines runs a worker's machines. It fills orders for machines, carries out clients' calls, and manages each
// machine's lifecycle on the host: it records the intent to start a machine before anything else happens, and removes
// all traces of a destroyed machine.
//
//   - A claim takes resources from the ledger in the transaction that records the machine (invariant 4). Repeating a
//     claim with the same order id has the same result (invariant 7).
//   - Every effect on the host is recorded durably before it happens. Each operation is a
//     run of package fsm, whose steps may execute again after a crash (invariant 5).
//   - After a crash, tasks that drivers are running are adopted if they have a record. If a task has no record, the
//     worker refuses to start, unless the operator has allowed it to remove such tasks. No machine is restarted because
//     of a crash, and no exit is lost (invariant 6).
//   - The network, mounts and devices of a machine with an image exist from before its
//     program starts until after the program has exited. The image stays on the host
//     until the machine is destroyed. A stopped machine keeps its record, its volumes and
//     its address.
//
// The engine serializes the operations on one machine. One goroutine per started machine
// waits for its program's exit (watch.go).
package machines

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Config configures a worker's machines.
type Config struct {
	State        *state.State
	Admit        *admit.Host
	Drivers      map[bourse.ImageKind]driver.Driver // must include one for host images
	Images       ImageHost                          // nil if the worker cannot run images
	Network      Network                            // nil if all machines use the host's network
	Scratch      Scratch                            // nil if root file systems cannot be limited
	Volumes      Volumes
	Secrets      *SecretReader
	Policy       Policy
	KeepAliveEnv func(*bourse.Machine) []string // returns the environment variables that a program needs to keep its machine awake
	Forget       bool                           // remove machines that exist on the host but have no record, instead of refusing to start
}

// Volumes attaches volumes to machines, and mounts them on the host.
type Volumes interface {
	// Attach records that the volumes in a machine's mounts belong to it, and copies their
	// properties to the mounts.
	Attach(tx *store.Tx, m *bourse.Machine) error
	// Detach records that a destroyed machine's volumes no longer belong to it. It is
	// idempotent.
	Detach(tx *store.Tx, m *bourse.Machine) error
	// Mount mounts a machine's volumes on the host, and returns the mounts for its driver.
	// It is idempotent.
	Mount(ctx context.Context, m *bourse.Machine) ([]driver.Mount, error)
	// Unmount undoes Mount once the machine's program has exited. It is idempotent.
	Unmount(ctx context.Context, m *bourse.Machine) error
}

// Tasks manages cold tasks. Each cold task has its own machine.
type Tasks interface {
	// Payload returns the payload of a machine's task. The machine's program reads it from stdin.
	Payload(m *bourse.Machine) ([]byte, error)
	// MachineExited returns a function that records the outcome of a machine's task. The caller calls the function in
	// the transaction that records the program's exit.
	MachineExited(ctx context.Context, m *bourse.Machine, exit bourse.Exit) (func(*store.Tx) error, error)
	// MachineDestroyed records that an unfinished task was canceled because its machine was destroyed.
	MachineDestroyed(tx *store.Tx, m *bourse.Machine) error
}

// Machines manages the machines of one worker. Its methods are safe for concurrent use.
type Machines struct {
	state        *state.State
	host         *admit.Host
	drivers      *drivers
	images       *images
	network      Network // nil if all machines use the host's network
	scratch      Scratch // nil if root file systems cannot be limited
	volumes      Volumes
	tasks        Tasks
	secrets      *SecretReader
	policy       Policy
	keepAliveEnv func(*bourse.Machine) []string
	forget       bool

	defs    definitions
	watched watching
	usages  cpuSamples
}

// New returns a worker's machines and registers their operations with the engine. It
// does not start any goroutines. The caller must call SetTasks before the worker runs.
func New(cfg Config) *Machines {
	ms := &Machines{
		state: cfg.State, host: cfg.Admit, network: cfg.Network, scratch: cfg.Scratch, volumes: cfg.Volumes,
		secrets: cfg.Secrets, policy: cfg.Policy, keepAliveEnv: cfg.KeepAliveEnv, forget: cfg.Forget,
		drivers: &drivers{all: cfg.Drivers, containersReady: make(chan struct{})},
		images:  newImages(cfg.State, cfg.Images),
	}
	ms.define()
	return ms
}

// SetTasks sets the manager of cold tasks.
func (ms *Machines) SetTasks(tasks Tasks) { ms.tasks = tasks }

// ImageInUse reports whether an image is in use and must therefore not be removed.
func (ms *Machines) ImageInUse(digest string) bool { return ms.images.InUse(digest) }

var (
	errNoPollers = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without pollers")
	// errDriverNotReady is returned for the container driver until the driver has recovered.
	errDriverNotReady = bourse.Errorf(bourse.CodeUnavailable, "the container driver is not available yet")
)

// drivers contains the driver for each kind of image.
type drivers struct {
	all             map[bourse.ImageKind]driver.Driver // never changes
	containersReady chan struct{}                      // closed once the container driver has recovered
}

// of returns the driver that runs images of the given kind. It returns CodeUnavailable if the
// worker has no such driver, or the driver has not recovered yet.
func (d *drivers) of(kind bourse.ImageKind) (driver.Driver, error) {
	run, ok := d.all[kind]
	switch kind {
	case bourse.HostImage:
	case bourse.PollerImage:
		if !ok {
			return nil, errNoPollers
		}
	case bourse.RegistryImage:
		if !ok {
			return nil, errNoImages
		}
		select {
		case <-d.containersReady:
		default:
			return nil, errDriverNotReady
		}
	}
	return run, nil
}

// DriverOf returns the driver that runs a machine. It returns CodeUnavailable if the
// worker has no such driver, or the driver has not recovered yet.
func (ms *Machines) DriverOf(m *bourse.Machine) (driver.Driver, error) {
	return ms.drivers.of(m.Config.ImageKind())
}

// Containers returns CodeUnavailable if the container driver cannot run anything now, and nil
// otherwise.
func (ms *Machines) Containers() error {
	_, err := ms.drivers.of(bourse.RegistryImage)
	return err
}
