package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// View is this server's copy of the cluster's data. It is only a hint (invariant 8): a machine's row may lag behind the
// machine's state, and the workers must be asked before an object is reported as missing. The view contains no
// destroyed machines or volumes.
type View interface {
	// InSync reports whether the view is complete. After a start, or after the view's file was lost, the view is
	// complete only once it has been compared with another member's view. Until then, callers must ask the workers as
	// well.
	InSync() bool

	UnreachableWorkers(ctx context.Context) ([]inventory.UnreachableWorker, error)
	// Certified lists the brokers and proxies with certificates, whether or not they are running.
	Certified(ctx context.Context) ([]inventory.CertifiedMember, error)
	// Removed lists the servers that were removed from the cluster.
	Removed(ctx context.Context) ([]inventory.RemovedMember, error)
	// RemoveMember makes all members remove a server and its objects. It has the same durability guarantee as PutApp.
	RemoveMember(ctx context.Context, m bourse.Member) error

	MachineView
	AppView
}

// PolicyView is the part of a View that contains policies.
type PolicyView interface {
	// Policies lists the policies, by region and use.
	Policies(ctx context.Context) ([]inventory.Policy, error)
	// PutPolicy stores p. It replaces the policy that has the same region and use, if there is one. It has the same
	// durability guarantee as PutApp.
	PutPolicy(ctx context.Context, p *inventory.Policy) error
	// DropPolicy removes the policy that has p's region and use. It has the same durability guarantee as PutApp.
	DropPolicy(ctx context.Context, p *inventory.Policy) error
}

// MachineView is the part of a View that contains machines and volumes.
type MachineView interface {
	Machines(ctx context.Context, f inventory.Filter) ([]inventory.Listed, error)
	// Machine returns the machine with this ID, or nil if there is none.
	Machine(ctx context.Context, id bourse.MachineID) (*inventory.Listed, error)
	CountMachines(ctx context.Context) (map[bourse.AppRef]int, error)
	Volumes(ctx context.Context, f inventory.VolumeFilter) ([]inventory.ListedVolume, error)
}

// AppView is the part of a View that contains apps.
type AppView interface {
	// Apps returns the records of all apps, including tombstones.
	Apps(ctx context.Context) ([]bourse.App, error)
	// App returns the record with this name, which may be a tombstone, or nil if there is none.
	App(ctx context.Context, name bourse.AppName) (*bourse.App, error)
	// PutApp merges a record into the view and returns the merged record. It returns once this
	// server has stored the record and, if there are other members, some of them have received it.
	// CodeUnavailable means that the call had no effect.
	PutApp(ctx context.Context, app bourse.App) (bourse.App, error)
}
