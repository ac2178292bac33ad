// Package machines runs a worker's machines: the claims of them, what clients do
// with them, and their lives on the host, from the record of what is to be until
// nothing of them is left.
//
//   - A claim takes from the ledger in the transaction that records the machine
//     (invariant 4), and is idempotent by the order's id (invariant 7).
//   - Every effect on the host follows a durable record of it; each operation is
//     a run of package fsm whose steps may execute again after a crash
//     (invariant 5).
//   - After a crash what the drivers run is adopted when it has a record, and
//     removed when it has none; nothing is restarted for it, and no exit is lost
//     (invariant 6).
//   - A machine with an image has on the host what its record says, its image,
//     network, mounts and devices, before its program starts and until it has
//     ended; its image stays as long as the machine. What a stopped machine
//     keeps is its record, its volumes and its address.
//
// Operations on one machine are serialised by the engine. One goroutine per
// started machine waits for its end (watch.go).
package machines

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/store"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Config says what Machines stand on.
type Config struct {
	State   *state.State
	Admit   *admit.Host
	Drivers map[bourse.ImageKind]driver.Driver // of host images at least
	Images  ImageHost                          // goes with a driver of images; nil: none
	Network Network                            // nil: all use the host's
	Scratch Scratch                            // nil: root file systems have no limits
	Volumes Volumes
	Secrets Secrets
	Policy  Policy
	Awake   func(*bourse.Machine) []string // what a program's environment has to keep its machine awake
	Forget  bool                           // remove machines of the host that the store does not know, rather than refusing to start
}

// Volumes are the volumes that machines mount.
type Volumes interface {
	// Attach records that a machine has the volumes that it mounts, and copies their
	// properties to its mounts.
	Attach(tx *store.Tx, m *bourse.Machine) error
	// Detach records that a machine that is destroyed has none. It is idempotent.
	Detach(tx *store.Tx, m *bourse.Machine) error
	Mounter
}

// Tasks are the tasks for which some machines live.
type Tasks interface {
	// Payload returns what a machine's program reads on stdin.
	Payload(m *bourse.Machine) ([]byte, error)
	// Ended returns what is recorded of a machine's task beside the end of its
	// program.
	Ended(ctx context.Context, m *bourse.Machine, exit bourse.Exit) (func(*store.Tx) error, error)
	// Gone ends the task of a machine that is destroyed.
	Gone(tx *store.Tx, m *bourse.Machine) error
}

// Machines are the machines of one worker. Its methods are safe for concurrent
// use.
type Machines struct {
	state  *state.State
	host   *admit.Host
	ops    *operations
	usages cpuSamples
	forget bool
}

// New makes the machines of a worker and registers their operations. It starts
// nothing. SetTasks must follow.
func New(cfg Config) *Machines {
	ops := &operations{
		state: cfg.State, host: cfg.Admit, volumes: cfg.Volumes, secrets: cfg.Secrets,
		drivers:  &drivers{all: cfg.Drivers, late: make(chan struct{})},
		images:   newImages(cfg.State, cfg.Images),
		fittings: &Attachments{State: cfg.State, Host: cfg.Admit, Network: cfg.Network, Scratch: cfg.Scratch, Volumes: cfg.Volumes},
		policy:   cfg.Policy, awake: cfg.Awake,
	}
	ops.define()
	return &Machines{state: cfg.State, host: cfg.Admit, ops: ops, forget: cfg.Forget}
}

// SetTasks says whose machines are those of tasks. It is called before the
// worker runs.
func (ms *Machines) SetTasks(tasks Tasks) { ms.ops.tasks = tasks }

// ImageInUse reports whether an image must stay.
func (ms *Machines) ImageInUse(digest string) bool { return ms.ops.images.InUse(digest) }

var (
	errNoPull = bourse.Errorf(bourse.CodeUnavailable, "the worker was started without pollers")
	// errLate passes by itself: see RecoverLate.
	errLate = bourse.Errorf(bourse.CodeUnavailable, "the worker waits for its driver of images")
)

// drivers run the images of a worker, each a kind of them.
type drivers struct {
	all  map[bourse.ImageKind]driver.Driver // fixed
	late chan struct{}                      // closed when the driver of a registry's images has recovered
}

// of returns the driver that runs a kind of images. CodeUnavailable when the
// worker has none, and before it has recovered.
func (d *drivers) of(kind bourse.ImageKind) (driver.Driver, error) {
	run, ok := d.all[kind]
	switch kind {
	case bourse.HostImage:
	case bourse.PollerImage:
		if !ok {
			return nil, errNoPull
		}
	case bourse.RegistryImage:
		if !ok {
			return nil, ErrNoImages
		}
		select {
		case <-d.late:
		default:
			return nil, errLate
		}
	}
	return run, nil
}

// Containers returns why the driver of a registry's images runs nothing now, nil
// when it does.
func (ms *Machines) Containers() error {
	_, err := ms.ops.drivers.of(bourse.RegistryImage)
	return err
}
