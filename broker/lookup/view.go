package lookup

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/view/inventory"
)

// View is what this server has received about the whole cluster: a hint
// (invariant 8). What it lacks is asked of the workers before a caller learns
// that it is not there, and what it has of a machine is no more than news of its
// owner. Destroyed machines and volumes are not in it.
type View interface {
	// InSync reports whether the view has been compared with another member's
	// since this server started, and since it last lost its file. Until then
	// the workers are asked as well.
	InSync() bool

	AwayWorkers(ctx context.Context) ([]inventory.AwayWorker, error)
	// Forget has every member forget an absent worker and all that it has. It
	// returns as PutApp does.
	Forget(ctx context.Context, worker bourse.Member) error

	MachineView
	AppView
}

// MachineView is what a View has of machines and volumes.
type MachineView interface {
	Machines(ctx context.Context, f inventory.Filter) ([]inventory.Listed, error)
	// Machine returns nil if there is no such machine.
	Machine(ctx context.Context, id bourse.MachineID) (*inventory.Listed, error)
	CountMachines(ctx context.Context) (map[bourse.AppRef]int, error)
	Volumes(ctx context.Context, f inventory.VolumeFilter) ([]inventory.ListedVolume, error)
}

// AppView is what a View has of apps.
type AppView interface {
	// Apps returns every record, tombstones included.
	Apps(ctx context.Context) ([]bourse.App, error)
	// App returns the record of a name, which may be a tombstone; nil if there is none.
	App(ctx context.Context, name bourse.AppName) (*bourse.App, error)
	// PutApp merges a record into the view's and returns the merge. It returns
	// once that is on this server's disk and some other members have it, if
	// there are any. After an error with CodeUnavailable nothing happened.
	PutApp(ctx context.Context, app bourse.App) (bourse.App, error)
}
