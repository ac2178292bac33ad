package broker

import (
	"context"
	"time"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
)

// View is what this server has heard of the whole cluster: a hint (invariant
// 8). What it lacks is asked of the workers before a caller is told that it is
// not there, and what it has of a machine is no more than news of its owner.
type View interface {
	MachineView
	VolumeView
	AppView
	// Synced tells whether the view has been compared with another member's
	// since this server started, and since it last lost its file. Until then
	// the workers are asked beside it.
	Synced() bool
}

// MachineView lists what workers have told of their machines. Destroyed ones
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

// VolumeView lists what workers have told of their volumes. Destroyed ones are
// not there.
type VolumeView interface {
	// Volumes lists the volumes of an app, of all when app is empty.
	Volumes(ctx context.Context, app bourse.AppName) ([]ListedVolume, error)
}

// AppView keeps apps, which belong to no worker.
type AppView interface {
	// Apps gives every record, tombstones included.
	Apps(ctx context.Context) ([]bourse.App, error)
	// App finds the record of a name; it may be a tombstone.
	App(ctx context.Context, name bourse.AppName) (bourse.App, bool, error)
	// PutApp merges a record into the view's and gives the merge. It returns
	// once that is on this server's disk and some other members have it, if
	// there are any. After an error with CodeUnavailable nothing happened.
	PutApp(ctx context.Context, app bourse.App) (bourse.App, error)
}

// Listed is a machine as the view has it. Its lease has no nonce.
type Listed struct {
	bourse.Machine
	HostStatus machinesapi.HostStatus // of its worker
	HeardAt    time.Time              // when that was last known to be alive; zero: never
}

// ListedVolume is a volume as the view has it. Its usage is not known, and of
// its snapshots the newest are.
type ListedVolume struct {
	bourse.Volume
	HostStatus machinesapi.HostStatus // of its worker
	HeardAt    time.Time              // when that was last known to be alive; zero: never
}

// noView is the view of a broker that has none: everything is asked of the
// workers, and apps are written to all that answer.
type noView struct {
	keeper   AppKeeper
	members  func() []bourse.Member
	patience time.Duration
}

var _ View = noView{}

// Synced is false: the workers are to be asked.
func (noView) Synced() bool { return false }

// Machines lists nothing.
func (noView) Machines(context.Context, bourse.AppName) ([]Listed, error) { return nil, nil }

// MachinesNamed lists nothing.
func (noView) MachinesNamed(context.Context, bourse.AppName, string) ([]Listed, error) {
	return nil, nil
}

// Machine finds nothing.
func (noView) Machine(context.Context, bourse.MachineID) (Listed, bool, error) {
	return Listed{}, false, nil
}

// CountMachines counts nothing.
func (noView) CountMachines(context.Context, bourse.AppName) (map[bourse.AppRef]int, error) {
	return nil, nil
}

// Volumes lists nothing.
func (noView) Volumes(context.Context, bourse.AppName) ([]ListedVolume, error) { return nil, nil }

// Apps gives nothing.
func (noView) Apps(context.Context) ([]bourse.App, error) { return nil, nil }

// App finds nothing.
func (noView) App(context.Context, bourse.AppName) (bourse.App, bool, error) {
	return bourse.App{}, false, nil
}

// PutApp writes a record to every worker that answers and gives the merge of
// what they have now. One is enough: a reader merges what all of them say.
func (v noView) PutApp(ctx context.Context, app bourse.App) (bourse.App, error) {
	answers := ask(ctx, v.patience, v.members(), func(ctx context.Context, to bourse.Member) (bourse.App, error) {
		return v.keeper.PutApp(ctx, to, app)
	})
	merged, stored := app, false
	var lost error
	for _, a := range answers {
		switch {
		case a.err == nil:
			merged, stored = merged.Merge(a.got), true
		case bourse.CodeOf(a.err) != bourse.CodeUnavailable:
			lost = a.err // it may have been written there
		}
	}
	if stored {
		return merged, nil
	}
	if lost != nil {
		return merged, bourse.Errorf(bourse.CodeTimeout, "no worker confirmed the app: %w", lost)
	}
	return merged, noneAnswered(answers)
}
