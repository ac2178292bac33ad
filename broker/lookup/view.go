package lookup

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// View is what this server has received about the whole cluster: a hint
// (invariant 8). What it lacks is asked of the workers before a caller learns
// that it is not there, and what it has of a machine is no more than news of its
// owner.
type View interface {
	MachineView
	VolumeView
	AppView
	WorkerView
	// Synced reports whether the view has been compared with another member's
	// since this server started, and since it last lost its file. Until then
	// the workers are asked beside it.
	Synced() bool
}

// MachineView lists what workers have reported of their machines. Destroyed ones
// are not there.
type MachineView interface {
	// Machines lists the machines of an app, of all when app is empty.
	Machines(ctx context.Context, app bourse.AppName) ([]Listed, error)
	// MachinesNamed lists the machines of one name in an app.
	MachinesNamed(ctx context.Context, app bourse.AppName, name string) ([]Listed, error)
	// Machine finds one by its id.
	Machine(ctx context.Context, id bourse.MachineID) (Listed, bool, error)
	// CountMachines counts the machines of every app of this name, of all when
	// app is empty.
	CountMachines(ctx context.Context, app bourse.AppName) (map[bourse.AppRef]int, error)
}

// VolumeView lists what workers have reported of their volumes. Destroyed ones are
// not there.
type VolumeView interface {
	// Volumes lists the volumes of an app, of all when app is empty.
	Volumes(ctx context.Context, app bourse.AppName) ([]ListedVolume, error)
}

// WorkerView is about workers that are not heard from.
type WorkerView interface {
	AwayWorkers(ctx context.Context) ([]AwayWorker, error)
	// Forget has every member forget an absent worker and all that it has. It
	// returns as PutApp does.
	Forget(ctx context.Context, worker bourse.Member) error
}

// AwayWorker is what the view has of a worker that is not heard from.
type AwayWorker struct {
	ID                bourse.WorkerID
	HeardAt           time.Time // the last time; zero: never
	Machines, Volumes int
}

// AppView keeps apps, which belong to no worker.
type AppView interface {
	// Apps returns every record, tombstones included.
	Apps(ctx context.Context) ([]bourse.App, error)
	// App finds the record of a name; it may be a tombstone.
	App(ctx context.Context, name bourse.AppName) (bourse.App, bool, error)
	// PutApp merges a record into the view's and returns the merge. It returns
	// once that is on this server's disk and some other members have it, if
	// there are any. After an error with CodeUnavailable nothing happened.
	PutApp(ctx context.Context, app bourse.App) (bourse.App, error)
}

// Listed is a machine as the view has it. Its lease has no nonce.
type Listed struct {
	bourse.Machine
	HostStatus machinesapi.HostStatus // of its worker
	HeardAt    time.Time              // when that was last known to be alive; zero: never
	Whole      bool                   // its worker replied it: nothing of its config is missing
}

// ListedVolume is a volume as the view has it. Its usage is not known, and of
// its snapshots the newest are.
type ListedVolume struct {
	bourse.Volume
	HostStatus machinesapi.HostStatus // of its worker
	HeardAt    time.Time              // when that was last known to be alive; zero: never
}
