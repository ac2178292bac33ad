package run

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// API is the set of requests that a run makes, all of them for one app. Errors have the codes of [machinesapi.Client]:
// unavailable means that the request had no effect, and timeout means that its outcome is unknown. The methods must be
// safe for concurrent use.
type API interface {
	Machines
	Verbs
	Leases
	Volumes
	Reservations
	View
	// SetRelease records the status of a release, together with a note.
	SetRelease(ctx context.Context, id release.ID, status release.Status, note Note) error
}

// Machines creates, reads and changes the app's machines.
type Machines interface {
	Machine(ctx context.Context, id bourse.MachineID) (machinesapi.Machine, error)
	Create(ctx context.Context, in machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.Machine, error)
	Update(ctx context.Context, id bourse.MachineID, in machinesapi.UpdateMachine, nonce string) (machinesapi.Machine, error)
	// Destroy destroys a machine even if it is running.
	Destroy(ctx context.Context, id bourse.MachineID, nonce string) error
	SetMetadata(ctx context.Context, id bourse.MachineID, in machinesapi.MetadataPatch) error
	Logs(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery, line func(machinesapi.LogLine) error) error
}

// Verbs starts, stops, restarts and cordons existing machines, and waits for their states.
type Verbs interface {
	Start(ctx context.Context, id bourse.MachineID, nonce string) error
	Stop(ctx context.Context, id bourse.MachineID, nonce string) error
	Restart(ctx context.Context, id bourse.MachineID, nonce string) error
	Cordon(ctx context.Context, id bourse.MachineID, cordoned bool, nonce string) error
	Wait(ctx context.Context, id bourse.MachineID, want machinesapi.WaitMachine) (machinesapi.WaitReply, error)
}

// Leases acquires, extends and releases machine leases.
type Leases interface {
	Acquire(ctx context.Context, id bourse.MachineID, in machinesapi.LeaseRequest, nonce string) (machinesapi.Lease, error)
	Release(ctx context.Context, id bourse.MachineID, nonce string) error
}

// Volumes creates, reads and destroys the app's volumes.
type Volumes interface {
	MakeVolume(ctx context.Context, in machinesapi.CreateVolume, order bourse.OrderID) (machinesapi.Volume, error)
	Volume(ctx context.Context, id bourse.VolumeID) (machinesapi.Volume, error)
	DestroyVolume(ctx context.Context, id bourse.VolumeID) error
}

// Reservations reserves, extends and releases capacity.
type Reservations interface {
	Reserve(ctx context.Context, in machinesapi.CreateReservation) (machinesapi.Reservation, error)
	Extend(ctx context.Context, id bourse.ReservationID, in machinesapi.ExtendReservation) (machinesapi.Reservation, error)
	EndReservation(ctx context.Context, id bourse.ReservationID) error
}

// View reads the cluster's view.
type View interface {
	// Health reports how up to date each server's copy of the view is.
	Health(ctx context.Context) (machinesapi.ViewHealth, error)
	// Rows follows the app's machines in the API server's copy of the view. It calls news once for each existing
	// machine, then once with a zero Row, and then for each change to a machine. It returns an error when ctx is done
	// or the connection breaks.
	Rows(ctx context.Context, news func(Row)) error
}

// Row describes a machine as recorded in a copy of the view.
type Row struct {
	Machine  bourse.MachineID
	Worker   bourse.WorkerID
	Gone     bool // the machine was removed from the copy
	State    bourse.State
	Instance bourse.InstanceID
	Cordoned bool
	Starts   int
}
