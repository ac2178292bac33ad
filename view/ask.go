package view

import (
	"context"
	"time"

	"zombiezen.com/go/sqlite"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/internal/seal"
	"github.com/bourse-dev/bourse/machinesapi/release"
	"github.com/bourse-dev/bourse/view/inventory"
	"github.com/bourse-dev/bourse/view/wire"
)

// Query runs a query with Read, on a consistent snapshot of the file, and returns the query's
// result.
func Query[T any](ctx context.Context, v *View, question func(*sqlite.Conn) (T, error)) (T, error) {
	var answer T
	err := v.Read(ctx, func(c *sqlite.Conn) (err error) {
		answer, err = question(c)
		return err
	})
	return answer, err
}

// Machines lists the machines that match the filter, sorted by creation time, then by ID.
func (v *View) Machines(ctx context.Context, f inventory.Filter) ([]inventory.Listed, error) {
	return Query(ctx, v, inventory.Machines(f))
}

// Machine returns the machine with this ID, or nil if there is none.
func (v *View) Machine(ctx context.Context, id bourse.MachineID) (*inventory.Listed, error) {
	return Query(ctx, v, inventory.Machine(id))
}

// CountMachines returns the number of machines in each app. It omits apps without machines.
func (v *View) CountMachines(ctx context.Context) (map[bourse.AppRef]int, error) {
	return Query(ctx, v, inventory.CountMachines())
}

// Volumes lists the volumes that match the filter, sorted by creation time, then by ID.
func (v *View) Volumes(ctx context.Context, f inventory.VolumeFilter) ([]inventory.ListedVolume, error) {
	return Query(ctx, v, inventory.Volumes(f))
}

// Images lists the workers' images that match the filter, sorted by name, digest and worker.
func (v *View) Images(ctx context.Context, f inventory.ImageFilter) ([]inventory.ListedImage, error) {
	return Query(ctx, v, inventory.Images(f))
}

// UnreachableWorkers lists the workers that are unreachable or whose status is unknown.
func (v *View) UnreachableWorkers(ctx context.Context) ([]inventory.UnreachableWorker, error) {
	return Query(ctx, v, inventory.UnreachableWorkers())
}

// Removed lists the servers that an operator has removed.
func (v *View) Removed(ctx context.Context) ([]inventory.RemovedMember, error) {
	return Query(ctx, v, inventory.Removed())
}

// Certified lists the brokers and proxies that have cluster certificates.
func (v *View) Certified(ctx context.Context) ([]inventory.CertifiedMember, error) {
	return Query(ctx, v, inventory.Certified())
}

// Apps lists all apps by name, including deleted ones.
func (v *View) Apps(ctx context.Context) ([]bourse.App, error) {
	return Query(ctx, v, inventory.Apps())
}

// App returns the app with this name, even if it has been deleted, or nil if there is none.
func (v *View) App(ctx context.Context, name bourse.AppName) (*bourse.App, error) {
	return Query(ctx, v, inventory.App(name))
}

// Releases lists the releases of the app with this ID, oldest first.
func (v *View) Releases(ctx context.Context, app string) ([]release.Release, error) {
	return Query(ctx, v, inventory.Releases(app))
}

// Deployed returns the IDs of the apps that have releases.
func (v *View) Deployed(ctx context.Context) ([]string, error) {
	return Query(ctx, v, inventory.Deployed())
}

// Tokens lists all tokens, oldest first, including revoked ones.
func (v *View) Tokens(ctx context.Context) ([]inventory.Token, error) {
	return Query(ctx, v, inventory.Tokens())
}

// Token returns the token with this ID, or nil if there is none.
func (v *View) Token(ctx context.Context, id string) (*inventory.Token, error) {
	return Query(ctx, v, inventory.TokenByID(id))
}

// WireGuardPeers lists the laptops that may connect to private networks at the given time, oldest first.
func (v *View) WireGuardPeers(ctx context.Context, now time.Time) ([]inventory.WireGuardPeer, error) {
	return Query(ctx, v, inventory.WireGuardPeers(now))
}

// StoredWireGuardPeers returns the number of an organization's laptops, including those that may no longer connect.
func (v *View) StoredWireGuardPeers(ctx context.Context, org string) (int, error) {
	return Query(ctx, v, inventory.StoredWireGuardPeers(org))
}

// MeshWorkers lists all workers, each with the mesh settings that it has published.
func (v *View) MeshWorkers(ctx context.Context) ([]inventory.MeshWorker, error) {
	return Query(ctx, v, inventory.MeshWorkers())
}

// PrivateMachines lists the given apps' machines that were placed by a broker and have a private address.
func (v *View) PrivateMachines(ctx context.Context, apps []bourse.AppRef) ([]inventory.PrivateMachine, error) {
	return Query(ctx, v, inventory.PrivateMachines(apps))
}

// Policies lists the policies, sorted by region and use.
func (v *View) Policies(ctx context.Context) ([]inventory.Policy, error) {
	return Query(ctx, v, inventory.Policies())
}

// Canceled lists the canceled orders that this worker must not fill, oldest first.
func (v *View) Canceled(ctx context.Context, worker bourse.WorkerID) ([]bourse.OrderID, error) {
	return Query(ctx, v, inventory.Canceled(worker))
}

// CanceledOn lists the workers that must not fill the order, because it has been canceled there.
func (v *View) CanceledOn(ctx context.Context, order bourse.OrderID) ([]bourse.WorkerID, error) {
	return Query(ctx, v, inventory.CanceledAt(order))
}

// Secrets returns the sealed secrets of the app with this ID, sorted by name.
func (v *View) Secrets(ctx context.Context, app string) ([]seal.Secret, error) {
	return Query(ctx, v, inventory.Secrets(app))
}

// SecretMarks returns the versions of the latest changes to an app's secrets, one for each broker
// that has changed them.
func (v *View) SecretMarks(ctx context.Context, app string) (seal.Marks, error) {
	return Query(ctx, v, inventory.SecretMarks(app))
}

// AwaitSecrets waits until an app's SecretMarks include the given version, and returns them. If ctx is done first, it
// returns the current marks and no error.
func (v *View) AwaitSecrets(ctx context.Context, app string, version uint64) (seal.Marks, error) {
	changes := v.Watch(wire.TableSecrets)
	defer changes.Stop()
	marks, err := v.SecretMarks(ctx, app)
	for err == nil && !marks.Has(version) {
		select {
		case <-changes.C:
		case <-ctx.Done():
			return marks, nil
		}
		next, failed := v.SecretMarks(ctx, app)
		if ctx.Err() != nil {
			return marks, nil
		}
		marks, err = next, failed
	}
	return marks, err
}
