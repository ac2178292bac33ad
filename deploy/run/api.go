package run

import (
	"context"

	"github.com/bourse-dev/bourse"
	"github.com/bourse-dev/bourse/machinesapi"
	"github.com/bourse-dev/bourse/machinesapi/release"
)

// API contains the requests of a run, which are about one app. Errors have the codes of [machinesapi.Client]: unavailable
// means that nothing happened, timeout that the outcome is unknown. The methods are called by several goroutines.
type API interface {
	Machines
	Verbs
	Leases
	Volumes
	Reservations
	View
	// SetRelease records the status of a release, and a note about it.
	SetRelease(ctx context.Context, id release.ID, status release.Status, note Note) error
}

// Machines makes and changes machines of the app.
type Machines interface {
	Machine(ctx context.Context, id bourse.MachineID) (machinesapi.Machine, error)
	Create(ctx context.Context, in machinesapi.CreateMachine, order bourse.OrderID) (machinesapi.Machine, error)
	Update(ctx context.Context, id bourse.MachineID, in machinesapi.UpdateMachine, nonce string) (machinesapi.Machine, error)
	// Destroy destroys a machine, even if it is running.
	Destroy(ctx context.Context, id bourse.MachineID, nonce string) error
	SetMetadata(ctx context.Context, id bourse.MachineID, in machinesapi.MetadataPatch) error
	Logs(ctx context.Context, id bourse.MachineID, want machinesapi.LogQuery, line func(machinesapi.LogLine) error) error
}

// Verbs act on an existing machine.
type Verbs interface {
	Start(ctx context.Context, id bourse.MachineID, nonce string) error
	Stop(ctx context.Context, id bourse.MachineID, nonce string) error
	Restart(ctx context.Context, id bourse.MachineID, nonce string) error
	Cordon(ctx context.Context, id bourse.MachineID, cordoned bool, nonce string) error
	Wait(ctx context.Context, id bourse.MachineID, want machinesapi.WaitMachine) (machinesapi.WaitReply, error)
}

// Leases takes and releases leases of machines.
type Leases interface {
	Acquire(ctx context.Context, id bourse.MachineID, in machinesapi.LeaseRequest, nonce string) (machinesapi.Lease, error)
	Release(ctx context.Context, id bourse.MachineID, nonce string) error
}

// Volumes makes and destroys volumes of the app.
type Volumes interface {
	MakeVolume(ctx context.Context, in machinesapi.CreateVolume, order bourse.OrderID) (machinesapi.Volume, error)
	Volume(ctx context.Context, id bourse.VolumeID) (machinesapi.Volume, error)
	DestroyVolume(ctx context.Context, id bourse.VolumeID) error
}

// Reservations reserves capacity.
type Reservations interface {
	Reserve(ctx context.Context, in machinesapi.CreateReservation) (machinesapi.Reservation, error)
	Extend(ctx context.Context, id bourse.ReservationID, in machinesapi.ExtendReservation) (machinesapi.Reservation, error)
	EndReservation(ctx context.Context, id bourse.ReservationID) error
}

// View reads the cluster's view.
type View interface {
	// Health returns the position of each server's copy.
	Health(ctx context.Context) (machinesapi.ViewHealth, error)
	// Rows calls news with each of the app's machines in the API's own copy, then with a zero Row, and then for each change
	// of a machine, until ctx or the connection ends. It always returns an error.
	Rows(ctx context.Context, news func(Row)) error
}

// Row describes a machine in a copy of the view.
type Row struct {
	Machine  bourse.MachineID
	Worker   bourse.WorkerID
	Gone     bool // it was removed from the copy
	State    bourse.State
	Instance bourse.InstanceID
	Cordoned bool
	Starts   int
}
