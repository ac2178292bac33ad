package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// View is this server's copy of the cluster's data. It is a hint (invariant 8): before a caller is told that an
// object does not exist, the workers are asked, and a machine's row is only as current as its owner's latest
// publication. It does not contain destroyed machines and volumes.
type View interface {
	// InSync reports whether the view has been compared with another member's since this server started and since its
	// file was last lost. Until then, the workers are asked as well.
	InSync() bool

	AwayWorkers(ctx context.Context) ([]inventory.AwayWorker, error)
	// Forget makes all members remove an absent worker and its objects. It returns under the same conditions as
	// PutApp.
	Forget(ctx context.Context, worker bourse.Member) error

	MachineView
	AppView
}

// MachineView is the part of a View about machines and volumes.
type MachineView interface {
	Machines(ctx context.Context, f inventory.Filter) ([]inventory.Listed, error)
	// Machine returns the machine with this ID, or nil if there is none.
	Machine(ctx context.Context, id bourse.MachineID) (*inventory.Listed, error)
	CountMachines(ctx context.Context) (map[bourse.AppRef]int, error)
	Volumes(ctx context.Context, f inventory.VolumeFilter) ([]inventory.ListedVolume, error)
}

// AppView is the part of a View about apps.
type AppView interface {
	// Apps returns all records, including tombstones.
	Apps(ctx context.Context) ([]bourse.App, error)
	// App returns the record with this name, which may be a tombstone, or nil if there is none.
	App(ctx context.Context, name bourse.AppName) (*bourse.App, error)
	// PutApp merges a record into the view and returns the merged record. It returns once this server has stored the
	// record and some other members have received it, if there are any. CodeUnavailable means that it had no effect.
	PutApp(ctx context.Context, app bourse.App) (bourse.App, error)
}
