package machines

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/driver"
	"github.com/bourse-dev/bourse/network"
	"github.com/bourse-dev/bourse/worker/admit"
	"github.com/bourse-dev/bourse/worker/state"
)

// Attachments make and remove them.
type Attachments struct {
	State   *state.State
	Host    *admit.Host
	Network Network // nil: none
	Scratch Scratch // nil: none
	Volumes Mounter
}

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

// Mounter mounts and unmounts the volumes of machines.
type Mounter interface {
	// Mount mounts a machine's volumes on the host, and returns where they go in
	// it. It is idempotent.
	Mount(ctx context.Context, m *bourse.Machine) ([]driver.Mount, error)
	// Unmount undoes Mount once nothing of the machine runs. It is idempotent.
	Unmount(ctx context.Context, m *bourse.Machine) error
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
func (f *Attachments) Prepare(ctx context.Context, m *bourse.Machine) (Attached, error) {
	var out Attached
	if IsPlain(m) {
		return out, nil
	}
	var err error
	if out.Network, err = f.attachNetwork(ctx, m); err != nil {
		return out, fmt.Errorf("network of machine %s: %w", m.ID, err)
	}
	if out.Mounts, err = f.Volumes.Mount(ctx, m); err != nil {
		return out, fmt.Errorf("volumes of machine %s: %w", m.ID, err)
	}
	if n := f.Host.Ledger.Scratch(&m.Config); n > 0 {
		if f.Scratch == nil {
			return out, bourse.Errorf(bourse.CodeInvalid, "the worker can no longer limit the root file system of machine %s", m.ID)
		}
		if out.Scratch, err = f.Scratch.Scratch(ctx, m.ID, int64(n)); err != nil {
			return out, fmt.Errorf("root file system of machine %s: %w", m.ID, err)
		}
	}
	return out, nil
}

// Vacate undoes Prepare but for what a stopped machine keeps: what it wrote,
// and its address, which follows from its id.
func (f *Attachments) Vacate(ctx context.Context, m *bourse.Machine) error {
	if IsPlain(m) {
		return nil
	}
	return errors.Join(f.Volumes.Unmount(ctx, m), f.detachNetwork(ctx, m))
}

// Clear undoes Prepare altogether.
func (f *Attachments) Clear(ctx context.Context, m *bourse.Machine) error {
	err := f.Vacate(ctx, m)
	if f.Scratch != nil && m.Config.ImageKind() == bourse.RegistryImage {
		err = errors.Join(err, f.Scratch.RemoveScratch(ctx, m.ID))
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
func (f *Attachments) Shed(ctx context.Context, m *bourse.Machine) error {
	for n := range shedTries {
		try, cancel := context.WithTimeout(ctx, shedTimeout)
		err := f.Vacate(try, m)
		cancel()
		if err == nil || ctx.Err() != nil {
			return context.Cause(ctx)
		}
		f.State.Log.Warn("release what a stopped machine had of the host", "machine", m.ID, "attempt", n+1, "err", err)
		state.Rest(ctx, bourse.RestartBackoff(n+1))
	}
	return context.Cause(ctx)
}
